/**
 * The difference between two texts, word by word (Myers' algorithm). Words are segmented by the
 * rules of the language, Chinese included. Texts that differ almost everywhere are shown as one
 * replacement.
 *
 * @typedef {{kind: "same" | "gone" | "new", text: string}} Span
 */

const MOST_STEPS = 1500;

const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });

/** @param {string} text @returns {string[]} */
function pieces(text) {
  return Array.from(segmenter.segment(text), (piece) => piece.segment);
}

/**
 * @param {string} before
 * @param {string} after
 * @returns {Span[]}
 */
export function diffText(before, after) {
  const old = pieces(before);
  const now = pieces(after);
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (
    tail < old.length - head &&
    tail < now.length - head &&
    old[old.length - 1 - tail] === now[now.length - 1 - tail]
  )
    tail += 1;
  const middle = walk(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  return joined([
    { kind: "same", text: old.slice(0, head).join("") },
    ...middle,
    { kind: "same", text: tail ? old.slice(-tail).join("") : "" },
  ]);
}

/**
 * Myers' greedy algorithm: search forward, then trace the path back.
 * @param {string[]} old
 * @param {string[]} now
 * @returns {Span[]}
 */
function walk(old, now) {
  /** @type {Map<number, number>[]} */
  const reached = [];
  let front = new Map([[1, 0]]);
  const limit = Math.min(old.length + now.length, MOST_STEPS);
  for (let steps = 0; steps <= limit; steps += 1) {
    reached.push(new Map(front));
    for (let lane = -steps; lane <= steps; lane += 2) {
      const left = front.get(lane - 1) ?? -1;
      const right = front.get(lane + 1) ?? -1;
      const down = lane === -steps || (lane !== steps && left < right);
      let x = down ? right : left + 1;
      while (x < old.length && x - lane < now.length && old[x] === now[x - lane]) x += 1;
      front.set(lane, x);
      if (x >= old.length && x - lane >= now.length) return wayBack(reached, old, now);
    }
  }
  return [
    { kind: "gone", text: old.join("") },
    { kind: "new", text: now.join("") },
  ];
}

/**
 * @param {Map<number, number>[]} reached
 * @param {string[]} old
 * @param {string[]} now
 * @returns {Span[]}
 */
function wayBack(reached, old, now) {
  /** @type {Span[]} */
  const found = [];
  let x = old.length;
  let y = now.length;
  for (let steps = reached.length - 1; steps >= 0; steps -= 1) {
    const front = reached[steps];
    const lane = x - y;
    const left = front.get(lane - 1) ?? -1;
    const right = front.get(lane + 1) ?? -1;
    const down = lane === -steps || (lane !== steps && left < right);
    const fromX = down ? right : left;
    const fromY = fromX - (down ? lane + 1 : lane - 1);
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      found.push({ kind: "same", text: old[x - 1] });
      x -= 1;
      y -= 1;
    }
    if (steps === 0) break;
    found.push(down ? { kind: "new", text: now[y - 1] } : { kind: "gone", text: old[x - 1] });
    x = fromX;
    y = fromY;
  }
  return found.reverse();
}

/**
 * Join neighbours of the same kind; within a change, removed text comes before added text.
 * @param {Span[]} spans
 * @returns {Span[]}
 */
function joined(spans) {
  /** @type {Span[]} */
  const result = [];
  let gone = "";
  let fresh = "";
  const flush = () => {
    if (gone) result.push({ kind: "gone", text: gone });
    if (fresh) result.push({ kind: "new", text: fresh });
    gone = fresh = "";
  };
  for (const { kind, text } of spans) {
    if (!text) continue;
    if (kind === "gone") gone += text;
    else if (kind === "new") fresh += text;
    else {
      flush();
      const last = result.at(-1);
      if (last?.kind === "same") last.text += text;
      else result.push({ kind: "same", text });
    }
  }
  flush();
  return result;
}
