/**
 * Markdown. The server parses a text into a tree of known elements; here they are created one by
 * one, and text only becomes text. An element or attribute that is not listed here is never made,
 * whatever the tree says. Nothing is fetched: a picture is a link to where it is.
 *
 * @typedef {import("../core/protocol.js").MarkdownTreeShape} Tree
 * @typedef {string | [string, Record<string, any>, any[]]} TreeNode
 */

import { api } from "../core/api.js";
import { fill, h, icon, isSafe } from "../core/dom.js";
import { t } from "../locales/locale.js";
import { code, cutAt, prose, visible } from "./text.js";

/** How many characters of texts are remembered with their trees. */
const MOST_KNOWN = 2_000_000;
/** How many characters are sent at once. */
const MOST_SENT = 300_000;
/** What is shown of a long text at first: its characters, and so much for each element. */
const LONGEST = 12_000;
const ELEMENT = 8;
/** The least time between two looks at a growing text, and how many times longer than a look it is. */
const INTERVAL = 120;
const REST = 6;
const AGAIN = 2000;
const MATHML = "http://www.w3.org/1998/Math/MathML";

/** @type {Map<string, Tree>} the trees of texts, the last used last */
const known = new Map();
let size = 0;

/**
 * Fetch the trees of texts, so that `markdown` can draw them at once. A failure leaves them plain.
 *
 * @param {string[]} texts
 */
export async function learn(texts) {
  const missing = [...new Set(texts)].filter((text) => text && !known.has(text));
  while (missing.length) {
    const sent = [/** @type {string} */ (missing.shift())];
    let length = sent[0].length;
    while (missing.length && sent.length < 100 && length + missing[0].length <= MOST_SENT) {
      length += missing[0].length;
      sent.push(/** @type {string} */ (missing.shift()));
    }
    try {
      /** @type {Tree[]} */
      const trees = await api.post("markdown", { texts: sent });
      trees.forEach((tree, at) => remember(sent[at], tree));
    } catch {
      return;
    }
  }
}

/**
 * @param {string} text
 * @param {Tree} tree
 */
function remember(text, tree) {
  if (!known.has(text)) size += text.length;
  known.set(text, tree);
  for (const oldest of known.keys()) {
    if (size <= MOST_KNOWN || oldest === text) break;
    known.delete(oldest);
    size -= oldest.length;
  }
}

/**
 * A text as an element. Where its tree has not been fetched, it is shown as it is until it comes.
 *
 * @param {string} text
 * @returns {HTMLElement}
 */
export function markdown(text) {
  const tree = known.get(text);
  if (!tree) {
    const body = prose(text);
    learn([text]).then(() => known.has(text) && body.isConnected && body.replaceWith(markdown(text)));
    return body;
  }
  known.delete(text);
  known.set(text, tree);
  if (tree.plain) {
    const body = prose(text);
    body.append(h("p", { class: "muted tiny" }, t(`markdown.plain.${tree.plain}`)));
    return body;
  }
  const body = h("div", { class: "prose markdown" });
  const [short, left] = trim(tree.blocks, LONGEST);
  body.append(...elements(short));
  if (left <= 0) {
    const all = async () => {
      fill(body);
      for (const block of tree.blocks) {
        body.append(...elements([block]));
        // a long text is drawn over several frames
        if (body.childElementCount % 20 === 0) await new Promise(requestAnimationFrame);
      }
    };
    body.append(h("button", { type: "button", class: "more-text", onclick: all }, t("text.all", { n: text.length })));
  }
  return body;
}

/** A text that is still being written. All its blocks but the last are drawn once. */
export class Growing {
  element = h("div", { class: "prose markdown" });
  /** What came after the last look, and the caret. */
  ahead = h("span");
  rest = h("span", { class: "rest" }, this.ahead);
  text = "";
  /** How much of the text is drawn. */
  drawn = 0;
  /** Where the first block begins that may still change, and which of the element's children it is. */
  offset = 0;
  settled = 0;
  busy = false;
  timer = 0;
  next = 0;

  /** Show a longer text. @param {string} text */
  grow(text) {
    this.text = text;
    this.#place();
    this.#soon();
  }

  /** Put what was not looked at yet where the last block ends. */
  #place() {
    fill(this.ahead, visible(this.text.slice(this.drawn).replace(/\n+$/, "")));
    /** @type {Element} */
    let place = this.element;
    for (let last = place.lastElementChild; last?.matches(OPEN); last = last.lastElementChild) place = last;
    if (this.rest.parentElement !== place || place.lastChild !== this.rest) place.append(this.rest);
  }

  #soon() {
    if (this.busy || this.timer || this.drawn === this.text.length) return;
    this.timer = setTimeout(() => this.#look(), Math.max(0, this.next - performance.now()));
  }

  async #look() {
    this.timer = 0;
    this.busy = true;
    const started = performance.now();
    const { text, offset } = this;
    /** @type {Tree | null} */
    const tree = await api.post("markdown", { texts: [text.slice(offset)] }).then(([one]) => one, () => null);
    this.busy = false;
    if (tree && !tree.plain) {
      this.#draw(tree);
      this.drawn = text.length;
    }
    this.#place();
    this.element.dispatchEvent(new CustomEvent("pv-drawn", { bubbles: true }));
    const now = performance.now();
    this.next = now + (tree && !tree.plain ? Math.max(INTERVAL, REST * (now - started)) : AGAIN);
    this.#soon();
  }

  /** Draw the blocks from the first one that could still change. @param {Tree} tree */
  #draw(tree) {
    this.rest.remove();
    while (this.element.childNodes.length > this.settled) this.element.lastChild?.remove();
    this.element.append(...elements(tree.blocks));
    this.settled += tree.settled;
    this.offset += tree.offset;
  }
}

/** What goes on when more is written. */
const OPEN = "p, h3, h4, h5, h6, ul, ol, li, blockquote, .code-block, .code-block > pre";

// ── which messages ──────────────────────────────────────────────────────────────────────────────

/** @typedef {import("../core/api.js").Message} Message */

const STORAGE_KEY = "palaver.format";
const MOST_CHOSEN = 500;

/**
 * Whether a message is shown as Markdown: what a model wrote is, unless the reader chose otherwise.
 *
 * @param {Message} message
 */
export function isFormatted({ id, role }) {
  return (role === "assistant") !== chosen().includes(id);
}

/** Show a message the other way, from now on. @param {Message} message */
export async function toggleFormat(message) {
  const others = chosen().filter((id) => id !== message.id);
  if (others.length === chosen().length) others.push(message.id);
  localStorage.setItem(STORAGE_KEY, JSON.stringify(others.slice(-MOST_CHOSEN)));
  await learn(textsOf(message));
}

/** @returns {string[]} the messages that are not shown as their kind usually is */
function chosen() {
  try {
    const stored = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    return Array.isArray(stored) ? stored : [];
  } catch {
    return [];
  }
}

/** The texts of a message that are shown as Markdown. @param {Message} message @returns {string[]} */
export function textsOf(message) {
  const { content } = message;
  if (!isFormatted(message)) return [];
  if (typeof content === "string") return [content];
  return content.map((/** @type {Record<string, any>} */ part) => (part.type === "text" ? part.text : "")).filter(Boolean);
}

// ── from a tree to elements ─────────────────────────────────────────────────────────────────────

/**
 * The beginning of a tree, and how much more could have been taken.
 *
 * @param {TreeNode[]} nodes
 * @param {number} most
 * @returns {[TreeNode[], number]}
 */
function trim(nodes, most) {
  /** @type {TreeNode[]} */
  const taken = [];
  let left = most;
  for (const node of nodes) {
    if (left <= 0) break;
    if (typeof node === "string") {
      taken.push(node.length > left ? cutAt(node, left) : node);
      left -= node.length;
    } else if (node[0] === "pre" || node[0] === "math") {
      taken.push(node); // code is cut where it is drawn, a formula never
      left -= Math.min(textOf(node).length, LONGEST / 2);
    } else {
      const [kind, attributes, children] = node;
      const [inner, after] = trim(children, left - ELEMENT);
      taken.push([kind, attributes, inner]);
      left = after;
    }
  }
  return [taken, left];
}

/** @param {TreeNode} node @returns {string} */
function textOf(node) {
  return typeof node === "string" ? node : node[2].map(textOf).join("");
}

/** @param {TreeNode[]} nodes @returns {(Node | string)[]} */
function elements(nodes) {
  return nodes.flatMap((node) => {
    if (typeof node === "string") return visible(node);
    const [kind, attributes, children] = node;
    const make = ELEMENTS.get(kind);
    return make ? [make(attributes, children)] : visible(textOf(node));
  });
}

/** @param {keyof HTMLElementTagNameMap} tag @param {string} [name] */
const plain = (tag, name) => (/** @type {Record<string, any>} */ _attributes, /** @type {TreeNode[]} */ children) =>
  h(tag, { class: name }, elements(children));

/** @param {"th" | "td"} tag */
const cell = (tag) => (/** @type {Record<string, any>} */ { align }, /** @type {TreeNode[]} */ children) =>
  h(tag, { class: ["left", "center", "right"].includes(align) ? `to-${align}` : null }, elements(children));

/** A heading of an answer stands below those of the page. @param {number} level */
const heading = (level) => (/** @type {Record<string, any>} */ _attributes, /** @type {TreeNode[]} */ children) =>
  h(/** @type {"h3"} */ (`h${Math.min(6, level + 2)}`), { class: `text level-${level}` }, elements(children));

/** @type {Map<string, (attributes: Record<string, any>, children: TreeNode[]) => Node>} */
const ELEMENTS = new Map([
  ["p", plain("p", "text")],
  ["ul", plain("ul")],
  ["ol", ({ start }, children) => h("ol", { start: Number.isSafeInteger(start) ? start : null }, elements(children))],
  ["li", item],
  ["blockquote", plain("blockquote")],
  ["hr", plain("hr")],
  ["br", plain("br")],
  ["em", plain("em")],
  ["strong", plain("strong")],
  ["s", plain("s")],
  ["code", plain("code", "code-word")],
  ["note", plain("sup")],
  ["thead", plain("thead")],
  ["tbody", plain("tbody")],
  ["tr", plain("tr")],
  ["th", cell("th")],
  ["td", cell("td")],
  ["table", (_attributes, children) => h("div", { class: "table-box", tabindex: 0, role: "group", "aria-label": t("markdown.table") }, h("table", null, elements(children)))],
  ["pre", ({ language }, children) => code(children.map(textOf).join(""), String(language), children.map(piece))],
  ["a", ({ href, title }, children) => anchor(String(href), title, children, null)],
  ["image", ({ href, title }, children) => anchor(String(href), title, children, "image")],
  ["math", formula],
]);
for (let level = 1; level <= 6; level++) ELEMENTS.set(`h${level}`, heading(level));

/** @param {Record<string, any>} attributes @param {TreeNode[]} children */
function item({ task }, children) {
  if (task === undefined) return h("li", null, elements(children));
  const box = h("input", { type: "checkbox", checked: Boolean(task), disabled: true, "aria-label": t(task ? "markdown.done" : "markdown.open") });
  return h("li", { class: "task" }, box, elements(children));
}

/**
 * A link that shows where it leads, beside its own text; a picture is one too.
 *
 * @param {string} address
 * @param {unknown} title
 * @param {TreeNode[]} children
 * @param {string | null} picture  its icon
 */
function anchor(address, title, children, picture) {
  const label = children.map(textOf).join("");
  const inner = [picture ? [icon(picture), `${t("markdown.image")} `] : null, elements(children)];
  if (!isSafe(address)) return h("span", null, inner, visible(` (${address})`));
  const { host, pathname } = new URL(address);
  const shown = label === address ? null : ` (${host || pathname})`;
  const about = [address, title].filter(Boolean).join("\n");
  return h(
    "a",
    { href: address, title: about, rel: "noreferrer noopener", target: "_blank", class: picture ? "picture" : null },
    inner,
    shown ? h("span", { class: "host" }, visible(shown)) : null,
  );
}

const COLOURS = new Set(["comment", "keyword", "name", "string", "number", "inserted", "deleted"]);

/** A piece of code: its text and its colour. @param {TreeNode} node @returns {[string, string]} */
function piece(node) {
  const colour = typeof node === "string" ? "" : String(node[1].colour);
  return [textOf(node), COLOURS.has(colour) ? colour : ""];
}

/** The attributes of each element of a formula. @type {Map<string, string[]>} */
const FORMULA = new Map([
  ...["mrow", "mi", "mn", "mtext", "msqrt", "mroot", "msub", "msup", "msubsup", "mmultiscripts", "mprescripts", "none", "mtr"].map((name) => /** @type {[string, string[]]} */ ([name, []])),
  ["mo", ["stretchy", "fence", "form", "largeop", "movablelimits", "separator", "accent"]],
  ["mfrac", ["linethickness"]],
  ["munder", ["accentunder"]],
  ["mover", ["accent"]],
  ["munderover", ["accent", "accentunder"]],
  ["mstyle", ["displaystyle", "scriptlevel"]],
  ["mspace", ["width"]],
  ["mtable", ["columnalign"]],
  ["mtd", ["columnalign"]],
  ["menclose", ["notation"]],
]);

/** A formula; who copies it gets its source. @param {Record<string, any>} attributes @param {TreeNode[]} children */
function formula({ display, source }, children) {
  const math = document.createElementNS(MATHML, "math");
  if (display === "block") math.setAttribute("display", "block");
  math.append(...children.map(formulaNode));
  const whole = h("span", { class: display === "block" ? "math block" : "math", title: source }, h("span", { class: "only-spoken source", "aria-hidden": "true" }, visible(String(source))));
  whole.append(math);
  return whole;
}

/** @param {TreeNode} node @returns {Node} */
function formulaNode(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const [kind, attributes, children] = node;
  const allowed = FORMULA.get(kind);
  const element = document.createElementNS(MATHML, allowed ? kind : "mrow");
  for (const name of allowed ?? []) if (name in attributes) element.setAttribute(name, String(attributes[name]));
  element.append(...children.map(formulaNode));
  return element;
}
