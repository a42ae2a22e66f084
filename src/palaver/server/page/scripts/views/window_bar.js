/**
 * The context window as one bar: a stretch for every message (or run of messages), as wide as its
 * tokens, in the colour and pattern of its role, and what is left at the end. Stretches thinner
 * than a hair are joined with their neighbours of the same role, so a long conversation stays a
 * picture and not a blur.
 *
 * @typedef {{start: number, stop: number, role: string | null, tokens: number}} Stretch
 */

import { svg } from "../dom.js";

const WIDTH = 1000;
const HEIGHT = 40;
const HAIR = 2.5;

/** So many are drawn as they are, however thin. */
const FEW = 24;

/**
 * @param {any[]} items  {index, role, tokens} or {start, stop, role?, tokens}
 * @returns {Stretch[]}
 */
export function stretchesOf(items) {
  return items.map(({ index, start = index, stop = start + 1, role = null, tokens }) => ({ start, stop, role, tokens }));
}

/**
 * Join thin neighbours until each is at least a hair wide.
 *
 * @param {Stretch[]} stretches
 * @param {number} scale  tokens to width
 * @returns {Stretch[]}
 */
export function joinThin(stretches, scale) {
  /** @type {Stretch[]} */
  const joined = [];
  for (const each of stretches) {
    const last = joined.at(-1);
    const thin = last && (last.tokens * scale < HAIR || each.tokens * scale < HAIR);
    if (last && thin && last.role === each.role) {
      last.stop = each.stop;
      last.tokens += each.tokens;
    } else if (last && last.tokens * scale < HAIR && each.tokens * scale < HAIR) {
      last.stop = each.stop;
      last.tokens += each.tokens;
      last.role = null;
    } else joined.push({ ...each });
  }
  return joined;
}

/**
 * @param {Stretch[]} stretches
 * @param {number} window  tokens that the whole bar stands for
 * @param {{limit?: number | null, over?: (stretch: Stretch | null) => void, choose?: (stretch: Stretch) => void}} options
 */
export function windowBar(stretches, window, { limit, over, choose }) {
  const total = stretches.reduce((sum, { tokens }) => sum + tokens, 0);
  const whole = Math.max(window, total, 1);
  const scale = WIDTH / whole;
  let x = 0;
  const drawn = stretches.length > FEW ? joinThin(stretches, scale) : stretches;
  const bars = drawn.map((stretch) => {
    const width = stretch.tokens * scale;
    const bar = svg("rect", {
      class: `t-bar ${stretch.role ?? "mixed"}${choose ? " leads" : ""}`,
      x: x.toFixed(2),
      y: 0,
      width: Math.max(width - (width > 4 ? 1 : 0), 0.5).toFixed(2),
      height: HEIGHT,
      onpointerenter: over ? () => over(stretch) : null,
      onclick: choose ? () => choose(stretch) : null,
    });
    x += width;
    return bar;
  });
  return svg(
    "svg",
    {
      class: "t-window",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
      onpointerleave: over ? () => over(null) : null,
    },
    svg("rect", { class: "t-room", x: 0, y: 0, width: WIDTH, height: HEIGHT }),
    bars,
    limit && limit < whole
      ? svg("line", { class: "t-limit", x1: limit * scale, x2: limit * scale, y1: 0, y2: HEIGHT })
      : null,
  );
}
