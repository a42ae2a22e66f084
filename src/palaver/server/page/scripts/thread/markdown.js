/**
 * Texts as Markdown: their trees, which the server makes, what is drawn of a text that is stored or
 * still grows, and which messages are shown this way.
 *
 * @typedef {import("../core/protocol.js").MarkdownTreeShape} Tree
 */

import { api } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { t } from "../locales/locale.js";
import { elements, trim } from "./markdown-elements.js";
import { prose, visible } from "./text.js";

/** How many characters of texts are remembered with their trees. */
const MOST_KNOWN = 1_000_000;
/** How many characters are sent at once. */
const MOST_SENT = 300_000;
/** What is shown of a long text at first, in characters and elements (see `trim`). */
const LONGEST = 12_000;
/**
 * How long to wait between two looks at a growing text, in milliseconds: at least and at most, and
 * how many times longer than a look takes.
 */
const LEAST = 120;
const MOST = 1500;
const TIMES = 6;

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
  /** How much of the text was looked at, and how much of it is drawn: not the space at its end. */
  seen = 0;
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
    if (this.busy || this.timer || this.seen === this.text.length) return;
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
      this.seen = text.length;
      this.drawn = text.trimEnd().length;
    }
    this.#place();
    this.element.dispatchEvent(new CustomEvent("pv-drawn", { bubbles: true }));
    const now = performance.now();
    this.next = now + (tree && !tree.plain ? Math.max(LEAST, Math.min(TIMES * (now - started), MOST)) : MOST);
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
const OPEN = "p, h2, h3, h4, h5, h6, ul, ol, li, blockquote, .code-block, .code-block > pre";

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
