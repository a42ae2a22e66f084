/**
 * The registered actions that fit a message or the selected range, for the menu, the buttons and
 * the keyboard.
 *
 * @typedef {import("../core/api.js").Item} Item
 * @typedef {import("../core/registry.js").Action} Action
 * @typedef {import("../core/registry.js").Target} Target
 * @typedef {import("../shell/menu.js").Entry} Entry
 */

import { actions } from "../core/registry.js";
import { canWrite, get, set } from "../core/state.js";
import { t } from "../locales/locale.js";

/**
 * The text of a message, for copying.
 *
 * @param {import("../core/api.js").Message} message
 * @returns {string}
 */
export function textOf({ content }) {
  if (typeof content === "string") return content;
  return content.map((/** @type {Record<string, any>} */ part) => part.text ?? part.state?.output ?? part.state?.error ?? "").filter(Boolean).join("\n\n");
}

/**
 * The target of an action on an item: the selected range if the item is in it, or the item.
 *
 * @param {Item} item
 * @returns {Target}
 */
export function targetOf(item) {
  const { selection } = get();
  const inside = selection && item.index >= selection.start && item.index < selection.stop;
  return inside ? { ...selection, item } : { start: item.index, stop: item.index + 1, item };
}

/**
 * The target of an action that is given by a key or in the palette: the message that has the focus, or
 * the selected range. Null if there is neither.
 *
 * @returns {Target | null}
 */
export function focusedTarget() {
  const { focus, selection } = get();
  const thread = document.querySelector("pv-thread");
  const item = focus === null ? undefined : thread?.itemAt(focus);
  const whole = selection && thread?.itemAt(selection.start);
  return item ? targetOf(item) : whole ? { ...selection, item: whole } : null;
}

/**
 * The version whose messages are on the screen; undefined if an item has lost its place in it.
 *
 * @param {Item} [item]
 */
export function versionShown(item) {
  const thread = document.querySelector("pv-thread");
  const there = !item || thread?.itemAt(item.index)?.message.id === item.message.id;
  return there ? thread?.pages?.version : undefined;
}

/**
 * Whether an action can be done now.
 *
 * @param {Action} action
 * @param {Target} target
 */
export function fits(action, target) {
  const writes = action.writes !== false;
  if (writes && (!canWrite() || get().viewing !== null)) return false;
  if (target.stop - target.start > 1 && !action.many) return false;
  return !action.when || action.when(target);
}

/**
 * @param {Item} item
 * @returns {(Entry | null)[]}
 */
export function entriesFor(item) {
  const target = targetOf(item);
  const fitting = actions().filter((action) => fits(action, target));
  const mild = fitting.filter(({ danger }) => !danger);
  const harsh = fitting.filter(({ danger }) => danger);
  const choose = { label: t("message.select"), icon: "select", keys: "x", run: () => extendSelection(item.index) };
  return [
    ...mild.map((action) => entry(action, target)),
    choose,
    ...(harsh.length ? [null, ...harsh.map((action) => entry(action, target))] : []),
  ];
}

/**
 * @param {Item} item
 * @returns {Entry[]}
 */
export function quickFor(item) {
  const target = { start: item.index, stop: item.index + 1, item };
  return actions()
    .filter((action) => action.quick && fits(action, target))
    .map((action) => entry(action, target));
}

/**
 * Select a message, or extend the selection to it.
 *
 * @param {number} index
 */
export function extendSelection(index) {
  const { selection } = get();
  const start = selection ? Math.min(selection.start, index) : index;
  const stop = selection ? Math.max(selection.stop, index + 1) : index + 1;
  set({ selection: { start, stop }, focus: index });
}

/**
 * @param {Action} action
 * @param {Target} target
 * @returns {Entry}
 */
function entry(action, target) {
  const { label, icon, keys, danger } = action;
  return { label: t(label), icon, keys, danger, run: () => action.run(target) };
}
