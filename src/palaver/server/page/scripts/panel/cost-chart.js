/**
 * A chart of what was spent over time, drawn as SVG: bars for spans of time, or the sum so far as a
 * rising line. Its label says what it shows in one sentence, and a table below it has every figure.
 *
 * @typedef {import("../core/protocol.js").GetCosts["points"][number]} Point
 * @typedef {"cost" | "tokens" | "calls"} Measure
 *
 * @typedef {object} Chart
 * @property {readonly Point[]} points  oldest first
 * @property {number} since
 * @property {number} until
 * @property {number} bucket   the width of a point, in milliseconds
 * @property {Measure} measure
 * @property {boolean} rising  whether the sum so far is drawn
 * @property {string} label    what it is about
 */

import { h, svg } from "../core/dom.js";
import { clock, count, day, money, short, t } from "../locales/locale.js";

const WIDTH = 1000;
const HEIGHT = 100;
const DAY = 86_400_000;

/** The measures that a chart can show. */
export const MEASURES = Object.freeze(/** @type {const} */ (["cost", "tokens", "calls"]));

/** @param {Point} point @param {Measure} measure */
export function valueOf(point, measure) {
  if (measure === "cost") return point.cost ?? 0;
  return measure === "calls" ? point.calls : point.prompt + point.completion;
}

/** @param {number} value @param {Measure} measure */
const written = (value, measure) => (measure === "cost" ? money(value) : short(value));

/** @param {Chart} chart */
export function costChart(chart) {
  const { points, since, until, bucket, measure, rising, label } = chart;
  const spent = points.filter(({ calls }) => calls);
  const values = sums(chart);
  const top = Math.max(...values, 0);
  const total = points.reduce((sum, point) => sum + valueOf(point, measure), 0);
  const when = timeOf(bucket);
  const summary = t("run.chart.label", { label, total: written(total, measure), what: t(`run.measure.${measure}`), from: when(since), to: when(until - 1) });
  return h(
    "figure",
    { class: "run-figure" },
    h("p", { class: "run-top muted tiny" }, written(top, measure)),
    svg(
      "svg",
      { class: "run-chart", role: "img", "aria-label": summary, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" },
      [0, HEIGHT / 2, HEIGHT].map((y) => svg("line", { class: "run-grid", x1: 0, x2: WIDTH, y1: y, y2: y })),
      rising ? risingLine(chart, values, top) : bars(chart, values, top, when),
    ),
    h("div", { class: "run-axis muted tiny", "aria-hidden": "true" }, h("span", null, when(since)), h("span", null, when(until - 1))),
    h("figcaption", null, table(spent, when)),
  );
}

/** The value of each point, or the sum up to it. @param {Chart} chart */
function sums({ points, measure, rising }) {
  let sum = 0;
  return points.map((point) => {
    const value = valueOf(point, measure);
    sum += value;
    return rising ? sum : value;
  });
}

/** How a time is written, for points of a width. @param {number} bucket */
const timeOf = (bucket) => (bucket >= DAY ? day : clock);

/**
 * @param {Chart} chart
 * @param {number[]} values
 * @param {number} top
 * @param {(at: number) => string} when
 */
function bars({ points, since, until, bucket, measure }, values, top, when) {
  const scale = WIDTH / (until - since);
  const gap = Math.min(6, bucket * scale * 0.25);
  return points.map((point, at) => {
    const height = top ? (HEIGHT * values[at]) / top : 0;
    if (!height) return null;
    const box = { x: (point.at - since) * scale + gap / 2, width: Math.max(3, bucket * scale - gap), y: HEIGHT - height, height };
    return svg("rect", { class: "run-column", ...box }, svg("title", null, `${when(point.at)} · ${written(values[at], measure)}`));
  });
}

/**
 * @param {Chart} chart
 * @param {number[]} values
 * @param {number} top
 */
function risingLine({ points, since, until, bucket }, values, top) {
  const x = (/** @type {number} */ at) => ((WIDTH * (at - since)) / (until - since)).toFixed(1);
  const y = (/** @type {number} */ value) => (HEIGHT - (top ? (HEIGHT * value) / top : 0)).toFixed(1);
  // a sum rises while its point lasts and stays until the next one begins
  const path = points.map((point, at) => `L${x(point.at)} ${y(values[at - 1] ?? 0)}L${x(point.at + bucket)} ${y(values[at])}`).join("");
  return [
    svg("path", { class: "run-area", d: `M0 ${HEIGHT}${path}L${WIDTH} ${y(values.at(-1) ?? 0)}V${HEIGHT}Z` }),
    svg("path", { class: "run-line", d: `M0 ${HEIGHT}${path}L${WIDTH} ${y(values.at(-1) ?? 0)}` }),
  ];
}

/**
 * @param {readonly Point[]} points
 * @param {(at: number) => string} when
 */
function table(points, when) {
  const columns = ["time", "calls", "prompt", "completion", "cached", "cost"];
  const row = (/** @type {Point} */ point) => [count(point.calls), short(point.prompt), short(point.completion), short(point.cacheRead), point.cost === null ? "–" : money(point.cost)];
  return h(
    "details",
    { class: "run-table" },
    h("summary", { class: "muted tiny" }, t("run.table")),
    h(
      "div",
      { class: "run-wide", tabindex: 0, role: "region", "aria-label": t("run.table") },
      h(
        "table",
        { class: "v-table tiny" },
        h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, t(`run.column.${name}`))))),
        h("tbody", null, points.map((point) => h("tr", null, h("th", { scope: "row" }, when(point.at)), row(point).map((text) => h("td", null, text))))),
      ),
    ),
  );
}
