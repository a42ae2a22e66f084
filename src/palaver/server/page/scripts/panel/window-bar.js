/**
 * The context window as one bar: a span for every message or run of messages, as wide as its
 * tokens, in the colour and pattern of its role. Spans that are too thin to see are joined with
 * their neighbours of the same role.
 *
 * @typedef {{start: number, stop: number, role: string | null, tokens: number}} Span
 */

import { svg } from "../core/dom.js";

const WIDTH = 1000;
const HEIGHT = 40;
const HAIR = 2.5;

/** Up to this many spans are never joined. */
const FEW = 24;

/**
 * @param {import("../core/protocol.js").GetConversationsTokens["items"]} items
 * @returns {Span[]}
 */
export function spansOf(items) {
  return items.map(({ start, stop, role = null, tokens }) => ({ start, stop, role, tokens }));
}

/**
 * Join thin neighbours until each is wide enough to be seen.
 *
 * @param {Span[]} spans
 * @param {number} scale  tokens to width
 * @returns {Span[]}
 */
export function joinThin(spans, scale) {
  /** @type {Span[]} */
  const joined = [];
  for (const each of spans) {
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
 * @param {Span[]} spans
 * @param {number} window  tokens that the whole bar stands for
 * @param {{limit?: number | null, over?: (span: Span | null) => void, choose?: (span: Span) => void}} options
 */
export function windowBar(spans, window, { limit, over, choose }) {
  const total = spans.reduce((sum, { tokens }) => sum + tokens, 0);
  const whole = Math.max(window, total, 1);
  const scale = WIDTH / whole;
  let x = 0;
  const drawn = spans.length > FEW ? joinThin(spans, scale) : spans;
  const bars = drawn.map((span) => {
    const width = span.tokens * scale;
    const bar = svg("rect", {
      class: `t-bar ${span.role ?? "mixed"}${choose ? " leads" : ""}`,
      x: x.toFixed(2),
      y: 0,
      width: Math.max(width - (width > 4 ? 1 : 0), 0.5).toFixed(2),
      height: HEIGHT,
      onpointerenter: over ? () => over(span) : null,
      onclick: choose ? () => choose(span) : null,
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
