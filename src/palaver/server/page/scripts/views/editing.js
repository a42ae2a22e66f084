/**
 * The actions on messages, and the one way into the editor.
 *
 * @typedef {{action: string, start?: number, stop?: number, item?: import("../api.js").Item}} Wish
 */

import { api, url } from "../api.js";
import { h } from "../dom.js";
import { dialog } from "../pv-dialog.js";
import { attempt, notify } from "../pv-toast.js";
import { go } from "../routes.js";
import { get } from "../state.js";
import { t } from "../words.js";
import { registerAction } from "../views.js";
import { openErase } from "./erasing.js";
import { openMarks } from "./marking.js";
import { editableText } from "./operations.js";
import "./editor.js";

/**
 * Open the editor for a wish; an older version is for looking, not for editing.
 *
 * @param {Wish} wish
 */
export function openEditor({ action, start, stop, item }) {
  if (get().viewing !== null) {
    notify({ text: t("views.edit.past"), action: { label: t("views.edit.toNow"), run: () => go({ at: null }) } });
    return undefined;
  }
  if (item && action === "mark") return openMarks(item);
  if (item && action === "erase") return openErase(item);
  const box = dialog();
  const editor = /** @type {any} */ (h("pv-editor", null));
  const draft = {
    action,
    start,
    stop,
    index: item?.index,
    message: action === "replace" ? item?.message : undefined,
    role: action === "replace" ? item?.message.role : action.startsWith("insert") ? "user" : undefined,
    text: action === "replace" ? editableText(item?.message) : "",
  };
  editor.begin(draft, () => box.close());
  const title = item && !["delete", "truncate", "filter", "clear"].includes(action) ? t(`views.edit.${action}.title`, { index: String(item.index) }) : t("views.edit.title");
  return box.ask({ title, wide: true }, editor);
}

/**
 * Go another way from a message on: a fork of what is on the screen, cut after the message.
 *
 * @param {number} keep  how many messages the fork has
 */
function forkAt(keep) {
  const { id, viewing } = get();
  return attempt(async () => {
    const fork = await api.post(url`conversations/${id}/fork`, viewing === null ? {} : { at: viewing });
    if (keep < fork.length) {
      const operation = { operation: "TRUNCATE", keepFirst: keep };
      await api.post(url`conversations/${fork.id}/operations`, { operation });
    }
    go({ id: fork.id, at: null });
    notify({ text: t("views.forked") });
  });
}

/**
 * @param {string} name
 * @param {string} action
 * @param {Partial<import("../views.js").Action>} more
 */
function register(name, action, more) {
  registerAction(name, {
    label: `views.action.${name}`,
    run: ({ start, stop, item }) => openEditor({ action, start, stop, item }),
    ...more,
  });
}

register("edit", "replace", { icon: "edit", keys: "e", quick: true });
register("insert-before", "insert-before", { icon: "insert" });
register("insert-after", "insert-after", { icon: "insert", keys: "i" });
register("mark", "mark", { icon: "mark", keys: "m" });
register("delete", "delete", { icon: "trash", keys: "d", many: true });
registerAction("fork", {
  label: "views.action.fork",
  icon: "fork",
  keys: "f",
  run: ({ item }) => forkAt(item.index + 1),
});
register("erase", "erase", { icon: "erase", danger: true });
