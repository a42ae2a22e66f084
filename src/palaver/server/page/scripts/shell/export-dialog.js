/** The dialog that exports a conversation, in one of the formats that the server writes. */

import { address, url } from "../core/api.js";
import { h, icon } from "../core/dom.js";
import { nameOf } from "../core/state.js";
import { t } from "../locales/locale.js";
import { visible } from "../thread/text.js";
import { dialog } from "./dialog.js";

/** The formats of the API, by what they are for. */
const GROUPS = /** @type {const} */ ({
  read: ["markdown", "html"],
  keep: ["palaver-2", "jsonl"],
  convert: ["messages", "palaver-1", "openai-chat", "openai-responses", "anthropic", "gemini"],
});
/** @type {Record<string, string>} */
const NAMES = { markdown: "Markdown", html: "HTML", "openai-chat": "OpenAI Chat", "openai-responses": "OpenAI Responses", anthropic: "Anthropic", gemini: "Gemini" };

/** @param {import("../core/api.js").Head} head */
export function openExport(head) {
  const box = dialog();
  const link = (/** @type {string} */ format) =>
    h(
      "a",
      { class: "button", autofocus: format === "markdown", href: address(url`conversations/${head.id}/export`, { format }), download: "", onclick: () => setTimeout(() => box.close()) },
      icon("download"),
      NAMES[format] ?? t(`export.${format}`),
    );
  const groups = Object.entries(GROUPS).map(([name, formats]) =>
    h("section", { class: "export-group" }, h("h3", null, t(`export.for.${name}`)), h("p", { class: "muted small" }, t(`export.says.${name}`)), h("div", { class: "export-formats" }, ...formats.map(link))),
  );
  box.ask({ title: t("conversation.export") }, h("p", { class: "dialog-body clip muted" }, visible(nameOf(head) ?? t("conversation.untitled"))), ...groups);
}
