/**
 * Opens the editor, or the dialog of the actions that have their own.
 *
 * @typedef {{action: string, start?: number, stop?: number, item?: import("../core/api.js").Item,
 *   version?: number}} EditRequest  the version is that on the screen unless said
 */

import "./editor.js";
import { h } from "../core/dom.js";
import { go } from "../core/routes.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { dialog } from "../shell/dialog.js";
import { notify } from "../shell/toast.js";
import { versionShown } from "../thread/message-actions.js";
import { editableText, toolFields } from "./edit-operations.js";
import { openErase } from "./erase-dialog.js";
import { openMarks } from "./marks-dialog.js";

/**
 * Open the editor for an action. While an older version is shown, say that it can't be edited.
 *
 * @param {EditRequest} request
 */
export function openEditor({ action, start, stop, item, version = versionShown() }) {
  if (get().viewing !== null) {
    notify({ text: t("views.edit.past"), action: { label: t("views.edit.toNow"), run: () => go({ at: null }) } });
    return undefined;
  }
  if (item && action === "mark") return openMarks(item);
  if (item && action === "erase") return openErase(item);
  const box = dialog();
  const editor = h("pv-editor");
  const rewrites = action === "replace" || action === "resend";
  const draft = {
    action,
    start,
    stop,
    index: item?.index,
    message: rewrites ? item?.message : undefined,
    role: rewrites ? item?.message.role : action.startsWith("insert") ? "user" : undefined,
    text: rewrites ? editableText(item?.message) : "",
    tools: action === "replace" ? toolFields(item?.message) : [],
  };
  editor.begin(draft, version, () => box.close());
  const title = item && !["delete", "truncate", "filter", "clear"].includes(action) ? t(`views.edit.${action}.title`, { index: String(item.index) }) : t("views.edit.title");
  return box.ask({ title, wide: true }, editor);
}
