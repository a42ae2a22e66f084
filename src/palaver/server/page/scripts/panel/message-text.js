/** A message as plain text and as one line, for display in text nodes. */

import { t } from "../locales/locale.js";
import { visible } from "../thread/text.js";

/**
 * @param {any} message
 * @returns {string}
 */
export function messageText(message) {
  if (!message) return "";
  const { content } = message;
  if (typeof content === "string") return content;
  const parts = Array.isArray(content) ? content : Array.isArray(message.parts) ? message.parts : [];
  return parts.map(partText).filter(Boolean).join("\n");
}

/** @param {any} part @returns {string} */
function partText(part) {
  switch (part?.type) {
    case "text":
    case "reasoning":
      return part.text ?? "";
    case "tool-call":
      return `${part.tool}(${inOneLine(JSON.stringify(part.input ?? part.raw ?? {}))})`;
    case "tool":
      return outcome(part);
    case "file":
      return part.filename ?? part.mime ?? "file";
    case "compaction":
      return part.summary ?? part.text ?? "compaction";
    case "step-start":
    case "step-finish":
      return ""; // what a request used is no part of what was said
    default:
      return part?.text ?? part?.type ?? "";
  }
}

/** @param {any} part @returns {string} */
function outcome(part) {
  const state = part.state ?? {};
  return `${part.tool}: ${state.output ?? state.error ?? state.status ?? ""}`;
}

/** @param {string} text @returns {string} */
export function inOneLine(text) {
  return text.replace(/\s+/gu, " ").trim();
}

/**
 * The first words, cut between characters and never inside one.
 * @param {string} text
 * @param {number} [most]
 * @returns {string}
 */
export function firstWords(text, most = 90) {
  const line = inOneLine(text.slice(0, most * 4));
  const letters = Array.from(line);
  return letters.length <= most ? line : `${letters.slice(0, most - 1).join("")}…`;
}

/**
 * The first words for display: characters that can't be seen are shown by their numbers.
 * @param {string} text
 * @param {number} [most]
 * @returns {import("../elements.js").Child}
 */
export function preview(text, most) {
  return visible(firstWords(text, most) || t("views.noText"));
}
