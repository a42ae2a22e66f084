/**
 * The elements of a tree that the server made of Markdown. They are created one by one, and text
 * only becomes text. An element or attribute that is not listed here is never made, whatever the
 * tree says. Nothing is fetched: a picture is a link to where it is.
 *
 * @typedef {string | [string, Record<string, any>, any[]]} TreeNode
 */

import { h, icon, isSafe } from "../core/dom.js";
import { t } from "../locales/locale.js";
import { code, cutAt, visible } from "./text.js";

const ELEMENT = 8;
/** Code is cut where it is drawn: more of it counts no more. */
const MOST_CODE = 6000;
const MATHML = "http://www.w3.org/1998/Math/MathML";

/**
 * The beginning of a tree, and how much more could have been taken; an element counts as ELEMENT
 * characters.
 *
 * @param {TreeNode[]} nodes
 * @param {number} most
 * @returns {[TreeNode[], number]}
 */
export function trim(nodes, most) {
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
      left -= Math.min(textOf(node).length, MOST_CODE);
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

/** The elements of some nodes. @param {TreeNode[]} nodes @returns {(Node | string)[]} */
export function elements(nodes) {
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

/** A heading of an answer stands below that of the page. @param {number} level */
const heading = (level) => (/** @type {Record<string, any>} */ _attributes, /** @type {TreeNode[]} */ children) =>
  h(/** @type {"h2"} */ (`h${Math.min(6, level + 1)}`), { class: `text level-${level}` }, elements(children));

/** @type {Map<string, (attributes: Record<string, any>, children: TreeNode[]) => Node>} */
const ELEMENTS = new Map([
  ["p", plain("p", "text")],
  ["ul", (_attributes, children) => h("ul", { dir: "auto" }, elements(children))],
  ["ol", ({ start }, children) => h("ol", { dir: "auto", start: Number.isSafeInteger(start) ? start : null }, elements(children))],
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
 * A link that shows its host and its title beside its own text; a picture is one too.
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
  const place = host || pathname;
  const beside = [label === address || label === place ? "" : place, title ? `“${title}”` : ""].filter(Boolean).join(", ");
  return h(
    "a",
    { href: address, title: address, rel: "noreferrer noopener", target: "_blank", class: picture ? "picture" : null },
    inner,
    beside ? h("span", { class: "host" }, visible(` (${beside})`)) : null,
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
