/**
 * The history as a picture: one line from the newest to the oldest version, a lane beside it for
 * versions that were left behind, and a branch for every fork. The rows beside it say the same in
 * text; each kind of row has a fixed height, so that both line up.
 *
 * @typedef {import("./timeline.js").Row} Row
 * @typedef {{type: "version", row: Row, y: number, height: number}} VersionLine
 * @typedef {{type: "version", row: Row, y: number, height: number}
 *   | {type: "fork", fork: import("./timeline.js").Fork, row: Row, y: number, height: number}
 *   | {type: "batch", batch: number, y: number, height: number}} Line
 */

import { svg } from "../core/dom.js";
import { isReturn } from "./timeline.js";

export const HEIGHTS = Object.freeze({ version: 44, fork: 44, batch: 26 });
export const GUTTER = 64;
const MAIN = 18;
const LEFT_BEHIND = 36;
const BRANCH = 52;

/**
 * Rows with the lines between them: forks stand above the version they left, a batch's name below
 * its first version.
 *
 * @param {Row[]} rows
 * @returns {Line[]}
 */
export function linesOf(rows) {
  /** @type {Line[]} */
  const lines = [];
  let y = 0;
  /** @param {any} line */
  const put = (line) => {
    const height = HEIGHTS[/** @type {keyof typeof HEIGHTS} */ (line.type)];
    lines.push({ ...line, y: y + height / 2, height });
    y += height;
  };
  for (const row of rows) {
    for (const fork of row.forks) put({ type: "fork", fork, row });
    put({ type: "version", row });
    if (row.opensBatch !== null) put({ type: "batch", batch: row.opensBatch });
  }
  return lines;
}

/**
 * @param {Line[]} lines
 * @param {{selected: number | null, now: number, picked: number | null}} marks
 * @returns {SVGElement}
 */
export function picture(lines, { selected, now, picked }) {
  const height = lines.reduce((sum, line) => sum + line.height, 0);
  const versions = lines.filter((line) => line.type === "version");
  return svg(
    "svg",
    {
      class: "history-picture",
      width: GUTTER,
      height,
      viewBox: `0 0 ${GUTTER} ${height}`,
      "aria-hidden": "true",
    },
    mainLine(versions),
    leftBehind(versions),
    branches(lines),
    versions.map(({ row, y }) =>
      dot(row, y, {
        selected: covers(row, selected),
        now: covers(row, now),
        picked: covers(row, picked),
      }),
    ),
  );
}

/** @param {Row} row @param {number | null} version */
export const covers = (row, version) =>
  version !== null && row.first <= version && version <= row.last;

/** @param {Row} row */
const laneOf = (row) => (row.onLine ? MAIN : LEFT_BEHIND);

/** @param {VersionLine[]} versions */
function mainLine(versions) {
  const on = versions.filter(({ row }) => row.onLine);
  if (on.length < 2) return null;
  const [top, bottom] = [on[0].y, on[on.length - 1].y];
  return svg("path", { class: "h-line", d: `M${MAIN} ${top}V${bottom}` });
}

/**
 * Each run of versions that was left behind bends off where it began and, dotted, back to where the
 * conversation returned.
 * @param {VersionLine[]} versions  newest first
 */
function leftBehind(versions) {
  const paths = [];
  let place = 0;
  while (place < versions.length) {
    if (versions[place].row.onLine) {
      place += 1;
      continue;
    }
    let end = place;
    while (end + 1 < versions.length && !versions[end + 1].row.onLine) end += 1;
    const [top, bottom] = [versions[place].y, versions[end].y];
    const base = versions[end + 1]?.y;
    const back = versions[place - 1]?.y;
    if (base !== undefined) paths.push(svg("path", { class: "h-line left", d: bend(MAIN, base, LEFT_BEHIND, bottom) }));
    if (top !== bottom) paths.push(svg("path", { class: "h-line left", d: `M${LEFT_BEHIND} ${top}V${bottom}` }));
    if (back !== undefined) paths.push(svg("path", { class: "h-line back", d: bend(LEFT_BEHIND, top, MAIN, back) }));
    place = end + 1;
  }
  return paths;
}

/** @param {Line[]} lines */
function branches(lines) {
  const found = [];
  for (const line of lines) {
    if (line.type !== "fork") continue;
    const origin = lines.find((other) => other.type === "version" && other.row === line.row);
    if (!origin) continue;
    found.push(
      svg("path", { class: "h-line fork", d: bend(laneOf(line.row), origin.y, BRANCH, line.y) }),
      svg("circle", { class: "h-dot fork", cx: BRANCH, cy: line.y, r: 5 }),
    );
  }
  return found;
}

/**
 * @param {number} x1
 * @param {number} y1
 * @param {number} x2
 * @param {number} y2
 */
function bend(x1, y1, x2, y2) {
  const middle = y1 + Math.sign(y2 - y1) * Math.min(Math.abs(y2 - y1), 44) * 0.5;
  const end = y1 + Math.sign(y2 - y1) * Math.min(Math.abs(y2 - y1), 44);
  return `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${end}V${y2}`;
}

/**
 * A dot says by its shape what a version is: a small disc added messages, a pill many of them, a
 * diamond changed what was there, a ring went back or forth.
 *
 * @param {Row} row
 * @param {number} y
 * @param {{selected: boolean, now: boolean, picked: boolean}} marks
 */
function dot(row, y, { selected, now, picked }) {
  const x = laneOf(row);
  const state = `${row.onLine ? "" : " left"}${now ? " now" : ""}`;
  const shape =
    row.count > 1
      ? svg("rect", { class: `h-dot many${state}`, x: x - 5, y: y - 10, width: 10, height: 20, rx: 5 })
      : isReturn(row.change.kind)
        ? svg("circle", { class: `h-dot ring${state}`, cx: x, cy: y, r: 5 })
        : row.edits
          ? svg("path", { class: `h-dot edit${state}`, d: `M${x} ${y - 8}l8 8l-8 8l-8 -8z` })
          : svg("circle", { class: `h-dot${state}`, cx: x, cy: y, r: 5 });
  const halo =
    (selected || picked) &&
    svg("circle", { class: picked ? "h-halo picked" : "h-halo", cx: x, cy: y, r: 13 });
  return [halo || null, shape];
}
