/**
 * The keyboard shortcuts of the page, and the dialog that lists them. Actions on messages bring
 * their own keys.
 */

import { api, url } from "../core/api.js";
import { h } from "../core/dom.js";
import { bind, keyMap, keysOf } from "../core/keyboard.js";
import { actions } from "../core/registry.js";
import { go } from "../core/routes.js";
import { canWrite, get, set } from "../core/state.js";
import { t } from "../locales/locale.js";
import { extendSelection, fits, targetOf } from "../thread/message-actions.js";
import { begin } from "./conversation-actions.js";
import { dialog } from "./dialog.js";
import { attempt } from "./toast.js";

const thread = () => document.querySelector("pv-thread");
const inside = () => get().id !== null;
const writing = () => inside() && canWrite() && get().viewing === null;

/** Pressed again in its field, Ctrl-F is the browser's own. */
const finds = () => inside() && !document.querySelector("pv-find")?.focused;

/** Bind all keys. */
export function bindShortcuts() {
  const move = (/** @type {number} */ by) => () => {
    const first = thread()?.first ?? 0;
    focusOn((get().focus ?? (by > 0 ? first - 1 : first + 1)) + by);
  };
  const step = (/** @type {string} */ what) => () => attempt(() => api.post(url`conversations/${get().id}/${what}`));
  /** @type {[string, string, string, (() => boolean) | undefined, () => unknown][]} */
  const table = [
    ["j", "keys.down", "keys.thread", inside, move(1)],
    ["k", "keys.up", "keys.thread", inside, move(-1)],
    ["g g", "keys.top", "keys.thread", inside, () => thread()?.reveal(0)],
    ["G", "keys.bottom", "keys.thread", inside, () => thread()?.toEnd()],
    ["x", "keys.select", "keys.thread", inside, select],
    ["u", "undo", "keys.thread", () => writing() && get().head?.canUndo !== false, step("undo")],
    ["r", "redo", "keys.thread", () => writing() && get().head?.canRedo !== false, step("redo")],
    ["Mod+f", "find", "keys.thread", finds, () => document.querySelector("pv-find")?.open()],
    ["c", "keys.say", "keys.thread", writing, () => document.getElementById("say")?.focus()],
    ["/", "keys.search", "keys.page", undefined, () => document.querySelector("pv-sidebar")?.find()],
    ["n", "sidebar.new", "keys.page", canWrite, begin],
    ["Escape", "keys.escape", "keys.page", undefined, escape],
    ["?", "keys.title", "keys.page", undefined, showKeys],
  ];
  for (const [keys, label, group, when, run] of table) {
    bind({ keys, label, group, when, run });
  }
  for (const action of actions()) bindAction(action);
}

/** @param {import("../core/registry.js").Action} action */
function bindAction(action) {
  if (!action.keys) return;
  const target = () => {
    const { focus, selection } = get();
    const item = focus === null ? undefined : thread()?.itemAt(focus);
    const whole = selection && thread()?.itemAt(selection.start);
    return item ? targetOf(item) : whole ? { ...selection, item: whole } : null;
  };
  bind({
    keys: action.keys,
    label: action.label,
    group: "keys.message",
    when: () => {
      const about = target();
      return about !== null && fits(action, about);
    },
    run: () => action.run(/** @type {any} */ (target())),
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
