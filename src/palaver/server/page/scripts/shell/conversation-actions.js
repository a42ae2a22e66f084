/**
 * The actions on a whole conversation: create, rename, tag, pin, archive, throw away, export, delete.
 *
 * @typedef {import("../core/api.js").Head} Head
 */

import { api, url } from "../core/api.js";
import { commands, isPossible, registerCommand } from "../core/registry.js";
import { go } from "../core/routes.js";
import { get, nameOf } from "../core/state.js";
import { t } from "../locales/locale.js";
import { openMerge } from "../panel/merge-dialog.js";
import { askText, confirm } from "./dialog.js";
import { openExport } from "./export-dialog.js";
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

/** Fork what a conversation is now, and open the fork. @param {Head} head */
async function fork(head) {
  const made = await attempt(() => api.post(url`conversations/${head.id}/fork`, {}));
  if (!made) return;
  changed();
  go({ id: made.id, at: null });
  notify({ text: t("views.forked") });
}

/** Merge a fork back into the conversation that it was forked from. @param {Head} head */
async function merge({ id, parent, origin }) {
  if (parent && origin !== null) await openMerge({ parent, at: origin, fork: id, into: parent });
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

/**
 * Pin, archive or throw away, with a button that takes it back.
 *
 * @param {Head} head
 * @param {{status?: Head["status"], pinned?: boolean}} changes
 * @param {string} said  the key of a text
 */
async function place(head, changes, said) {
  const { status, pinned } = head;
  const { id, view } = get();
  if (!(await patch(head, changes))) return;
  // who throws away what he reads wants to see something else; undo brings him back
  const left = changes.status === "trashed" && id === head.id;
  if (left) go({ id: null, view: null, at: null });
  const undo = async () => (await patch(head, { status, pinned })) && left && go({ id, view });
  notify({ about: null, text: t(said, { name: nameOf(head) ?? t("conversation.untitled") }), action: { label: t("undo"), run: undo } });
}

/** Delete what is in the trash, if the reader is sure. */
export async function emptyTrash() {
  if (!(await confirm({ title: t("trash.empty"), text: t("trash.sure"), action: t("trash.empty"), danger: true }))) return;
  /** @type {import("../core/protocol.js").DeleteTrash | undefined} */
  const done = await attempt(() => api.delete("trash"));
  if (!done) return;
  changed();
  const { deleted, kept } = done;
  notify({ text: t("trash.emptied", { n: deleted }), detail: kept.length ? t("trash.kept", { n: kept.length }) : undefined });
}

const active = (/** @type {Head | null} */ head) => head?.status === "active";
const trashed = (/** @type {Head | null} */ head) => head?.status === "trashed";

register("pin", "pin", (head) => place(head, { pinned: true }, "conversation.pinned"), { when: (head) => active(head) && !head?.pinned });
register("unpin", "pin", (head) => place(head, { pinned: false }, "conversation.unpinned"), { when: (head) => active(head) && !!head?.pinned });
register("rename", "edit", rename);
register("tags", "tag", retag);
register("export", "download", openExport, { writes: false });
register("fork", "fork", fork);
register("merge", "merge", merge, { when: (head) => !!head?.parent });
register("archive", "archive", (head) => place(head, { status: "archived" }, "conversation.archived"), { when: active });
register("restore", "undo", (head) => place(head, { status: "active" }, "conversation.restored"), { when: (head) => !active(head) });
register("trash", "trash", (head) => place(head, { status: "trashed" }, "conversation.trashed"), { when: (head) => !trashed(head) });
register("delete", "erase", remove, { danger: true });

for (const [status, icon] of /** @type {[Head["status"], string][]} */ ([["active", "menu"], ["archived", "archive"], ["trashed", "trash"]])) {
  registerCommand(`list.${status}`, { label: `sidebar.show.${status}`, group: "keys.page", icon, run: () => document.querySelector("pv-sidebar")?.show(status) });
}
registerCommand("trash.empty", { label: "trash.empty", group: "keys.page", icon: "erase", writes: true, danger: true, run: emptyTrash });

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
  return Boolean(done);
}

/** Have the sidebar read the list again, even if the server's event does not arrive. */
function changed() {
  document.dispatchEvent(new CustomEvent("pv-conversations"));
}
