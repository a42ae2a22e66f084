/**
 * What the keys do. The actions on messages bring their own; here are those of the page.
 */

import { api, url } from "./api.js";
import { begin } from "./conversation-actions.js";
import { showKeys } from "./help.js";
import { bind } from "./keys.js";
import { choosing, fits, targetOf } from "./message-actions.js";
import { attempt } from "./pv-toast.js";
import { go } from "./routes.js";
import { canWrite, get, set } from "./state.js";
import { actions } from "./views.js";

/** @returns {any} */
const thread = () => document.querySelector("pv-thread");
const inside = () => get().id !== null;
const writing = () => inside() && canWrite() && get().viewing === null;

/** Give every key its meaning. */
export function bindShortcuts() {
  const move = (/** @type {number} */ by) => () => focusOn((get().focus ?? (by > 0 ? thread().first - 1 : thread().first + 1)) + by);
  const step = (/** @type {string} */ what) => () => attempt(() => api.post(url`conversations/${get().id}/${what}`));
  const table = [
    ["j", "keys.down", "keys.thread", inside, move(1)],
    ["k", "keys.up", "keys.thread", inside, move(-1)],
    ["g g", "keys.top", "keys.thread", inside, () => thread().reveal(0)],
    ["G", "keys.bottom", "keys.thread", inside, () => thread().toEnd()],
    ["x", "keys.select", "keys.thread", inside, select],
    ["u", "undo", "keys.thread", writing, step("undo")],
    ["r", "redo", "keys.thread", writing, step("redo")],
    ["c", "keys.say", "keys.thread", writing, () => document.getElementById("say")?.focus()],
    ["/", "keys.search", "keys.page", null, () => /** @type {any} */ (document.querySelector("pv-sidebar"))?.find()],
    ["n", "sidebar.new", "keys.page", canWrite, begin],
    ["Escape", "keys.escape", "keys.page", null, escape],
    ["?", "keys.title", "keys.page", null, showKeys],
  ];
  for (const [keys, label, group, when, run] of /** @type {any[]} */ (table)) {
    bind({ keys, label, group, when: when ?? undefined, run });
  }
  for (const action of actions()) bindAction(action);
}

/** @param {import("./views.js").Action} action */
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
  const to = Math.max(0, Math.min(index, thread().length - 1));
  if (thread().length === 0) return;
  thread().reveal(to, { nearest: true });
  set({ focus: to, selection: selection && { start: Math.min(selection.start, to), stop: Math.max(selection.stop, to + 1) } });
}

function select() {
  const { focus, selection } = get();
  if (selection) set({ selection: null });
  else if (focus !== null) choosing(focus);
}

/** Close what is open, the nearest first. */
function escape() {
  const app = document.querySelector("pv-app");
  const { selection, view, viewing, focus } = get();
  if (app?.hasAttribute("data-drawer")) app.removeAttribute("data-drawer");
  else if (selection) set({ selection: null });
  else if (view) go({ view: null });
  else if (viewing !== null) go({ at: null });
  else if (focus !== null) set({ focus: null });
}
