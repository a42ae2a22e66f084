/**
 * How each kind of message part is shown. A part of an unknown kind is shown as JSON, so that
 * nothing in a message is hidden.
 */

import { h, icon } from "../core/dom.js";
import { duration, money, short, t } from "../locales/locale.js";
import { fileCard } from "./file-card.js";
import { code, prose, sizeOf } from "./text.js";
import { toolCall, toolResult } from "./tool-card.js";

/** @typedef {Record<string, any>} Part */

/**
 * A part as an element; null for one that only separates others.
 *
 * @param {Part} part
 * @param {string[]} [orphans]  the calls that its message answers and that are not there
 * @param {(text: string) => HTMLElement} [write]  how text is shown
 * @returns {HTMLElement | null}
 */
export function partElement(part, orphans, write = prose) {
  const show = KINDS.get(part.type);
  return show ? show(part, orphans, write) : unknown(part);
}

/** @type {Map<string, (part: Part, orphans: string[] | undefined, write: (text: string) => HTMLElement) => HTMLElement | null>} */
const KINDS = new Map([
  ["text", text],
  ["reasoning", (part) => reasoning(part.text, spanOf(part.time))],
  ["tool-call", toolCall],
  ["tool", toolResult],
  ["step-start", () => null],
  ["step-finish", stepFinish],
  ["file", fileCard],
  ["compaction", (part) => line("compact", t(part.auto ? "part.compaction.auto" : "part.compaction"))],
  ["retry", (part) => line("redo", t("part.retry", { n: part.attempt }), part.error?.message ?? "")],
  ["subtask", (part) => card("fork", t("part.subtask", { agent: part.agent }), part.description, part.prompt)],
  ["agent", (part) => line("team", t("part.agent", { name: part.name }))],
  ["patch", (part) => card("diff", t("part.patch", { n: part.files.length }), part.hash, part.files.join("\n"))],
  ["snapshot", (part) => line("clock", t("part.snapshot"), part.snapshot)],
]);

/**
 * @param {Part} part
 * @param {string[] | undefined} _orphans
 * @param {(text: string) => HTMLElement} write
 * @returns {HTMLElement | null}
 */
function text(part, _orphans, write) {
  if (!part.text) return null;
  const body = write(part.text);
  if (!part.ignored && !part.synthetic) return body;
  const why = part.ignored ? t("part.ignored") : t("part.synthetic");
  return h("div", { class: "aside" }, h("span", { class: "chip" }, why), body);
}

/**
 * The reasoning of a model, folded.
 *
 * @param {string} thought
 * @param {number | null} took
 * @param {boolean} [open]
 * @returns {HTMLElement}
 */
export function reasoning(thought, took, open = false) {
  const label = took === null ? t("part.reasoning") : t("part.reasoning.took", { time: duration(took) });
  return h(
    "details",
    { class: "fold reasoning", open },
    h("summary", null, icon("right"), h("span", null, label), h("span", { class: "muted tiny" }, sizeOf(thought))),
    h("div", { class: "fold-body" }, prose(thought)),
  );
}

/** @param {Part} part */
function stepFinish({ tokens, cost, costComputed, reason }) {
  const facts = [...stepFacts({ tokens, cost, costComputed }), reason && reason !== "stop" ? reason : ""];
  return h("p", { class: "step-cost muted tiny" }, facts.filter(Boolean).join(" · ") || "\u00a0");
}

/**
 * What a request used, as it is written wherever it is shown: tokens, how many of them from the
 * cache, and the price, with `≈` before one that was computed and not the provider's own.
 *
 * @param {Record<string, any>} used
 * @returns {string[]}
 */
export function stepFacts({ tokens, cost, costComputed }) {
  const cache = (tokens?.cache?.read ?? 0) + (tokens?.cache?.write ?? 0);
  return [
    tokens && tokens.input + cache + tokens.output + tokens.reasoning ? t("step.tokens", { input: short(tokens.input + cache), output: short(tokens.output + tokens.reasoning) }) : "",
    tokens?.cache?.read ? t("step.cached", { n: short(tokens.cache.read) }) : "",
    cost === null || cost === undefined ? "" : `${costComputed ? "≈ " : ""}${money(cost)}`,
  ].filter(Boolean);
}

/**
 * @param {string} name
 * @param {string} label
 * @param {string} [detail]
 */
function line(name, label, detail = "") {
  const more = detail ? h("span", { class: "muted mono clip" }, detail) : null;
  return h("p", { class: "row small part-line" }, icon(name), h("span", null, label), more);
}

/**
 * @param {string} name
 * @param {string} label
 * @param {string} detail
 * @param {string} body
 */
function card(name, label, detail, body) {
  return h(
    "details",
    { class: "fold" },
    h("summary", null, icon("right"), icon(name), h("span", null, label), h("span", { class: "muted clip" }, detail)),
    h("div", { class: "fold-body" }, code(body)),
  );
}

/** @param {Part} part */
function unknown(part) {
  return h(
    "details",
    { class: "fold" },
    h("summary", null, icon("right"), h("span", null, t("part.unknown", { type: String(part.type) }))),
    h("div", { class: "fold-body" }, code(JSON.stringify(part, null, 2), "JSON")),
  );
}

/** @param {{start?: number, end?: number} | undefined} time */
function spanOf(time) {
  return time?.start && time.end ? time.end - time.start : null;
}
