/**
 * Turns as a waterfall: for each request to a model and each tool call a row with its name, a bar
 * that says when it ran and for how long, and its figures as text. The bars of a turn share one
 * scale; without them the rows say the same. A bar whose end was not stored is dashed.
 *
 * @typedef {import("../core/protocol.js").GetConversationsRuns} Runs
 * @typedef {Runs["turns"][number]} Turn
 * @typedef {Turn["steps"][number]} Step
 * @typedef {Step["calls"][number]} Call
 * @typedef {{start: number, end: number}} Scale
 */

import { h, icon, svg } from "../core/dom.js";
import { jump } from "../core/routes.js";
import { clock, duration, money, short, t } from "../locales/locale.js";
import { stepFacts } from "../thread/message-parts.js";
import { visible } from "../thread/text.js";

/** The shortest bar, in percent of the turn. */
const LEAST = 0.8;

/** How a call that is not as it should be is marked. */
const CALL_CHIPS = Object.freeze({ pending: "warn", running: "accent", error: "bad", missing: "warn", incomplete: "warn", orphan: "warn" });

/** What the ledger of the cache calls a break; a cause that is not here is shown as it is. */
const CAUSES = new Set(["edit", "compaction", "tools-changed", "model-changed", "options-changed", "expiry", "fork", "unknown"]);

/** Turns, the newest first. @param {readonly Turn[]} turns */
export function waterfall(turns) {
  return h("ol", { class: "run-turns", reversed: true }, turns.map(turnItem).reverse());
}

/** @param {Turn} turn */
function turnItem(turn) {
  const scale = scaleOf(turn);
  const calls = turn.steps.flatMap((step) => step.calls);
  const known = turn.steps.filter(({ cost }) => cost !== null);
  const took = scale.end - scale.start;
  const facts = [
    clock(turn.at),
    turn.steps.length ? t("run.requests", { n: turn.steps.length }) : t("run.noRequest"),
    calls.length ? t("run.calls", { n: calls.length }) : "",
    took ? duration(took) : "",
    known.length ? money(known.reduce((sum, { cost }) => sum + (cost ?? 0), 0)) : "",
  ];
  return h(
    "li",
    { class: "run-turn" },
    h(
      "div",
      { class: "run-head" },
      h("button", { type: "button", class: "plain run-name", data: { focus: `turn-${turn.start}` }, onclick: () => jump(turn.start) }, h("strong", { class: "clip" }, turn.partial ? t("run.partial") : visible(turn.text || t(`role.${turn.role}`)))),
      h("p", { class: "muted tiny" }, facts.filter(Boolean).join(" · ")),
    ),
    h(
      "ol",
      { class: "run-rows" },
      turn.steps.map((step, at) => [stepRow(step, scale, nextTime(turn, at)), step.calls.map((call) => callRow(call, step.index, scale))]),
      turn.results.map((call) => callRow(call, call.index ?? turn.start, scale)),
    ),
  );
}

/** When a turn began and when the last of it ended. @param {Turn} turn @returns {Scale} */
export function scaleOf({ steps, results }) {
  const calls = [...steps.flatMap((step) => step.calls), ...results];
  const times = [...steps, ...calls].flatMap(({ start, end }) => [start, end]).filter((time) => typeof time === "number");
  return times.length ? { start: Math.min(...times), end: Math.max(...times) } : { start: 0, end: 0 };
}

/**
 * Where the bar of a request without an end is drawn to: what came after it in the turn.
 *
 * @param {Turn} turn
 * @param {number} at
 */
function nextTime({ steps }, at) {
  const starts = [...steps[at].calls, ...steps.slice(at + 1, at + 2)].map(({ start }) => start ?? Infinity);
  return Math.min(...starts.filter((time) => time >= steps[at].start), Infinity);
}

/**
 * @param {Step} step
 * @param {Scale} scale
 * @param {number} next
 */
function stepRow(step, scale, next) {
  const { model, agent, retries, cache, outcome } = step;
  const name = [agent === "assistant" ? null : agent, model?.slice(model.indexOf(":") + 1)].filter(Boolean).join(" · ") || t("run.answer");
  const finish = step.finish && !["stop", "interrupted", "error"].includes(step.finish) ? step.finish : "";
  const facts = [...stepFacts(step), cache?.written ? t("run.written", { n: short(cache.written) }) : "", finish];
  return h(
    "li",
    { class: `run-row ${outcome}`, data: { index: step.index } },
    rowHead("run", name, step.index, step.end === null ? null : step.end - step.start, [
      outcome === "finished" ? null : chip(outcome === "failed" ? "bad" : "warn", t(`run.${outcome}`)),
      retries.length ? chip("warn", t("run.retries", { n: retries.length })) : null,
    ]),
    bar(step.start, step.end ?? Math.min(next, scale.end), scale, step.end === null ? "step open" : "step", retries.map(({ at }) => at)),
    line(facts.filter(Boolean).join(" · ") || t("run.noUsage"), "muted"),
    cacheLine(cache),
    step.error ? line(step.error, "danger-text") : null,
    retries.map((retry) => line(t("run.retry", { n: retry.attempt, error: retry.error }), "muted")),
  );
}

/** What was expected of the provider's cache, where that was stored and it read less. @param {Step["cache"]} cache */
function cacheLine(cache) {
  if (!cache || cache.expected === null || cache.expected === undefined) return null;
  const { expected, read, lost, cause } = cache;
  if (!lost) return line(t("run.cache.held", { read, expected }), "muted");
  const why = !cause ? t("run.cause.unknown") : CAUSES.has(cause) ? t(`run.cause.${cause}`) : cause;
  return line(t("run.cache.lost", { read, expected, lost: lost ?? 0, why }), "run-lost");
}

/**
 * @param {Call} call
 * @param {number} answer  the index of the message that made it
 * @param {Scale} scale
 */
function callRow({ tool, status, start, end, index, error }, answer, scale) {
  const known = typeof start === "number";
  const over = typeof end === "number";
  const kind = status === "completed" ? null : CALL_CHIPS[status];
  return h(
    "li",
    { class: `run-row call ${status}` },
    rowHead("tool", tool, index ?? answer, known && over ? end - start : null, [kind ? chip(kind, t(`run.call.${status}`)) : null]),
    known ? bar(start, over ? end : scale.end, scale, over ? "call" : "call open", []) : null,
    error ? line(error, "danger-text") : null,
  );
}

/**
 * @param {string} picture
 * @param {string} name
 * @param {number} index
 * @param {number | null} took
 * @param {import("../core/dom.js").Child} chips
 */
function rowHead(picture, name, index, took, chips) {
  return h(
    "div",
    { class: "run-head" },
    h("button", { type: "button", class: "plain run-name", data: { focus: `run-${index}-${name}` }, onclick: () => jump(index) }, icon(picture), h("span", { class: "clip" }, name), h("span", { class: "muted tiny mono" }, `#${index}`)),
    chips,
    h("span", { class: "run-took" }, took === null ? h("span", { class: "muted" }, t("run.noTime")) : duration(took)),
  );
}

/** @param {string} kind @param {string} text */
const chip = (kind, text) => h("span", { class: `chip ${kind}` }, text);

/** @param {string} text @param {string} kind */
const line = (text, kind) => h("p", { class: `run-facts tiny ${kind}` }, visible(text));

/**
 * A bar from one time to another, and a tick for each retry. The text of its row says the same.
 *
 * @param {number} start
 * @param {number} end
 * @param {Scale} scale
 * @param {string} kind
 * @param {readonly number[]} ticks
 */
function bar(start, end, scale, kind, ticks) {
  const span = Math.max(scale.end - scale.start, 1);
  const at = (/** @type {number} */ time) => Math.min(100, Math.max(0, (100 * (time - scale.start)) / span));
  const width = Math.max(LEAST, at(end) - at(start));
  return svg(
    "svg",
    { class: "run-bar", "aria-hidden": "true", width: "100%", height: 10 },
    svg("line", { class: "run-track", x1: "0%", x2: "100%", y1: 5, y2: 5 }),
    svg("rect", { class: `run-span ${kind}`, x: `${Math.min(at(start), 100 - width)}%`, width: `${width}%`, y: 1, height: 8, rx: 2 }),
    ticks.map((time) => svg("line", { class: "run-tick", x1: `${at(time)}%`, x2: `${at(time)}%`, y1: 0, y2: 10 })),
  );
}
