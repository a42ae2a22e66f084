/**
 * The one way into the editor, and into what is edited in a box of its own.
 *
 * @typedef {{action: string, start?: number, stop?: number, item?: import("../api.js").Item}} Wish
 */

import { h } from "../dom.js";
import { dialog } from "../pv-dialog.js";
import { notify } from "../pv-toast.js";
import { go } from "../routes.js";
import { get } from "../state.js";
import { t } from "../words.js";
import "./editor.js";
import { openErase } from "./erasing.js";
import { openMarks } from "./marking.js";
import { editableText } from "./operations.js";

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
