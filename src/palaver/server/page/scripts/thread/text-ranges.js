/** Where a text stands in a message that is drawn, to be marked with the CSS highlight registry. */

/** Texts in different blocks do not run into one another. */
const BLOCK = "p, pre, li, td, th, h1, h2, h3, h4, h5, h6, summary, blockquote, .tool-head, .aside";

/**
 * Where a text stands in a message, in any case of its letters.
 *
 * @param {HTMLElement} row
 * @param {string} text
 * @returns {Range[]}
 */
export function rangesOf(row, text) {
  /** @type {{node: Node, start: number}[]} */
  const nodes = [];
  let whole = "";
  /** @type {Element | null | undefined} */
  let block = null;
  const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.parentElement?.closest(".message-body, .message-note")) continue;
    const inside = node.parentElement?.closest(BLOCK);
    if (inside !== block) whole += "\n";
    block = inside;
    nodes.push({ node, start: whole.length });
    whole += node.nodeValue ?? "";
  }
  const folded = whole.toLowerCase();
  // a few letters get longer: then only the same case is found
  const [hay, needle] = folded.length === whole.length ? [folded, text.toLowerCase()] : [whole, text];
  const found = [];
  let from = 0;
  for (let at = hay.indexOf(needle); at >= 0; at = hay.indexOf(needle, at + needle.length)) {
    while (from + 1 < nodes.length && nodes[from + 1].start <= at) from++;
    let to = from;
    while (to + 1 < nodes.length && nodes[to + 1].start < at + needle.length) to++;
    const range = document.createRange();
    range.setStart(nodes[from].node, at - nodes[from].start);
    range.setEnd(nodes[to].node, at + needle.length - nodes[to].start);
    found.push(range);
  }
  return found;
}
