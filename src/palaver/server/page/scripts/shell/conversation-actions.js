/**
 * The actions on a whole conversation: create, rename, tag, export, delete.
 *
 * @typedef {import("../core/api.js").Head} Head
 */

import { address, api, url } from "../core/api.js";
import { h } from "../core/dom.js";
import { commands, isPossible, registerCommand } from "../core/registry.js";
import { go } from "../core/routes.js";
import { get, nameOf } from "../core/state.js";
import { t } from "../locales/locale.js";
import { askText, confirm } from "./dialog.js";
import { attempt, notify } from "./toast.js";

/** @returns {Promise<void>} */
export async function begin() {
  const head = await attempt(() => api.post("conversations", {}));
  if (!head) return;
  changed();
  go({ id: head.id, at: null });
  requestAnimationFrame(() => document.getElementById("say")?.focus());
}

/** @param {Head} head */
export async function rename(head) {
  const title = await askText({ title: t("conversation.rename"), label: t("conversation.title"), value: nameOf(head) ?? "", action: t("save") });
  if (title === null || title.trim() === (head.title ?? "")) return;
  await patch(head, { title: title.trim() });
}

/** @param {Head} head */
export async function retag(head) {
  const text = await askText({ title: t("conversation.tags"), label: t("conversation.tags"), value: head.tags.join(", "), action: t("save"), hint: t("conversation.tags.hint") });
  if (text === null) return;
  const tags = [...new Set(text.split(/[,，]/).map((tag) => tag.trim()).filter(Boolean))];
  await patch(head, { tags });
}

/** @param {Head} head */
export async function remove(head) {
  const name = nameOf(head) ?? t("conversation.untitled");
  const sure = await confirm({ title: t("conversation.delete"), text: t("conversation.delete.sure", { name, n: head.length }), action: t("delete"), danger: true });
  if (!sure) return;
  const { id, view } = get();
  if (id === head.id) go({ id: null, view: null, at: null });
  const done = await attempt(() => api.delete(url`conversations/${head.id}`));
  if (done === undefined) {
    if (id === head.id) go({ id, view });
    return;
  }
  changed();
  notify({ text: t("conversation.deleted", { name }) });
}

/** @param {Head} head */
export function exportConversation(head) {
  const where = address(url`conversations/${head.id}/export`, { format: "palaver-2" });
  h("a", { href: where, download: "" }).click();
}

registerCommand("new", { label: "sidebar.new", group: "keys.page", icon: "plus", keys: "n", writes: true, run: begin });

/**
 * Add a command about a conversation to its menu.
 *
 * @param {string} name
 * @param {string} icon
 * @param {(head: Head) => unknown} run
 * @param {Partial<import("../core/registry.js").Command>} [more]
 */
function register(name, icon, run, more = {}) {
  const label = `conversation.${name}`;
  registerCommand(label, { label, group: "conversation", icon, menu: "conversation", writes: true, run: (head) => head && run(head), ...more });
}

register("rename", "edit", rename);
register("tags", "tag", retag);
register("export", "download", exportConversation, { writes: false });
register("delete", "trash", remove, { danger: true });

/**
 * The menu of a conversation.
 *
 * @param {Head} head
 * @returns {(import("./menu.js").Entry | null)[]}
 */
export function entriesOf(head) {
  const fitting = commands().filter((command) => command.menu === "conversation" && isPossible(command, head));
  const entry = (/** @type {import("../core/registry.js").Command} */ { label, icon, keys, danger, run }) => ({ label: t(label), icon, keys, danger, run: () => run(head) });
  const harsh = fitting.filter(({ danger }) => danger).map(entry);
  return [...fitting.filter(({ danger }) => !danger).map(entry), ...(harsh.length ? [null, ...harsh] : [])];
}

/**
 * @param {Head} head
 * @param {Partial<Head>} changes
 */
async function patch(head, changes) {
  const done = await attempt(() => api.patch(url`conversations/${head.id}`, changes));
  if (done) changed();
}

/** Have the sidebar read the list again, even if the server's event does not arrive. */
function changed() {
  document.dispatchEvent(new CustomEvent("pv-conversations"));
}
