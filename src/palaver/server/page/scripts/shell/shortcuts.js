/**
 * The commands of the page that have keys, the binding of all keys, and the dialog that lists them.
 */

import { api, url } from "../core/api.js";
import { h } from "../core/dom.js";
import { bind, keyMap, keysOf } from "../core/keyboard.js";
import { actions, commands, isPossible, registerCommand } from "../core/registry.js";
import { go } from "../core/routes.js";
import { canWrite, get, set } from "../core/state.js";
import { t } from "../locales/locale.js";
import { extendSelection, fits, focusedTarget } from "../thread/message-actions.js";
import { dialog } from "./dialog.js";
import { openPalette } from "./palette.js";
import { attempt } from "./toast.js";

const thread = () => document.querySelector("pv-thread");
const writing = () => canWrite() && get().viewing === null;

const move = (/** @type {number} */ by) => () => {
  const first = thread()?.first ?? 0;
  focusOn((get().focus ?? (by > 0 ? first - 1 : first + 1)) + by);
};
const step = (/** @type {string} */ what) => () => attempt(() => api.post(url`conversations/${get().id}/${what}`));

const IN_THREAD = { group: "keys.thread", open: true };
registerCommand("down", { ...IN_THREAD, label: "keys.down", keys: "j", unlisted: true, run: move(1) });
registerCommand("up", { ...IN_THREAD, label: "keys.up", keys: "k", unlisted: true, run: move(-1) });
registerCommand("top", { ...IN_THREAD, label: "keys.top", icon: "up", keys: "g g", run: () => thread()?.reveal(0) });
registerCommand("bottom", { ...IN_THREAD, label: "keys.bottom", icon: "down", keys: "G", run: () => thread()?.toEnd() });
registerCommand("select", { ...IN_THREAD, label: "keys.select", icon: "select", keys: "x", run: select });
registerCommand("undo", { ...IN_THREAD, label: "undo", icon: "undo", keys: "u", when: () => writing() && get().head?.canUndo !== false, run: step("undo") });
registerCommand("redo", { ...IN_THREAD, label: "redo", icon: "redo", keys: "r", when: () => writing() && get().head?.canRedo !== false, run: step("redo") });
registerCommand("find", { ...IN_THREAD, label: "find", icon: "search", keys: "Mod+f", when: () => !document.querySelector("pv-find")?.focused, run: () => document.querySelector("pv-find")?.open() });
registerCommand("say", { ...IN_THREAD, label: "keys.say", icon: "edit", keys: "c", when: writing, run: () => document.getElementById("say")?.focus() });
registerCommand("now", { ...IN_THREAD, label: "past.now", icon: "history", when: () => get().viewing !== null, run: () => go({ at: null }) });
registerCommand("palette", { group: "keys.page", label: "palette", keys: "Mod+k", unlisted: true, run: openPalette });
registerCommand("search", { group: "keys.page", label: "keys.search", icon: "search", keys: "/", run: () => document.querySelector("pv-sidebar")?.find() });
registerCommand("escape", { group: "keys.page", label: "keys.escape", keys: "Escape", unlisted: true, run: escape });

/** Bind the keys of all commands and actions. */
export function bindShortcuts() {
  for (const command of commands()) {
    const { keys, label, group } = command;
    if (keys) bind({ keys, label, group, when: () => isPossible(command), run: () => command.run(get().head) });
  }
  for (const action of actions()) bindAction(action);
}

/** @param {import("../core/registry.js").Action} action */
function bindAction(action) {
  if (!action.keys) return;
  bind({
    keys: action.keys,
    label: action.label,
    group: "keys.message",
    when: () => {
      const about = focusedTarget();
      return about !== null && fits(action, about);
    },
    run: () => action.run(/** @type {any} */ (focusedTarget())),
  });
}

/** @param {number} index */
function focusOn(index) {
  const { selection } = get();
  const shown = thread();
  if (!shown?.length) return;
  const to = Math.max(0, Math.min(index, shown.length - 1));
  shown.reveal(to, { nearest: true });
  set({ focus: to, selection: selection && { start: Math.min(selection.start, to), stop: Math.max(selection.stop, to + 1) } });
}

function select() {
  const { focus, selection } = get();
  const last = (thread()?.length ?? 0) - 1;
  if (selection) set({ selection: null });
  else if (last >= 0) extendSelection(focus ?? last);
}

/** Close the topmost thing that is open. */
function escape() {
  const app = document.querySelector("pv-app");
  const { selection, view, viewing, focus } = get();
  if (app?.hasAttribute("data-drawer")) app.removeAttribute("data-drawer");
  else if (selection) set({ selection: null });
  else if (view) go({ view: null });
  else if (viewing !== null) go({ at: null });
  else if (focus !== null) set({ focus: null });
}

/** Open the help. */
export function showKeys() {
  const groups = Map.groupBy(keyMap(), ({ group }) => group);
  const columns = [...groups].map(([group, bindings]) =>
    h(
      "section",
      null,
      h("h3", undefined, t(group)),
      h(
        "dl",
        { class: "keys" },
        ...bindings.map(({ keys, label }) =>
          h("div", undefined, h("dt", undefined, ...keysOf(keys).map((key) => h("kbd", undefined, key))), h("dd", undefined, t(label))),
        ),
      ),
    ),
  );
  dialog().ask({ title: t("keys.title"), wide: true }, h("div", { class: "dialog-body help" }, ...columns));
}
