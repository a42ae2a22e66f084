/**
 * Functions that create elements from data. Text only becomes text nodes: nothing in this file, and
 * therefore nothing on the page, parses a string as markup.
 *
 * @typedef {import("../elements.js").Child} Child
 */

const SVG = "http://www.w3.org/2000/svg";
const SPRITE = asset("icons/icons.svg");

/** Properties that are set on the element itself, since their attribute means something else. */
const OWN = new Set(["value", "checked", "disabled", "hidden", "selected", "open", "indeterminate"]);

/**
 * Create an element.
 *
 *     h("button", { class: "quiet", onclick: close, "aria-label": t("close") }, icon("x"))
 *
 * `on…` takes a listener, `data` an object of data attributes, `vars` an object of CSS variables;
 * `true` sets an empty attribute, and `null`, `undefined` and `false` set none.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) setProperty(element, name, value);
  element.append(...nodes(children));
  return element;
}

/**
 * Replace the children of an element.
 *
 * @template {Element} E
 * @param {E} element
 * @param {...Child} children
 * @returns {E}
 */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/**
 * One icon of the sprite, by the name of its symbol. It is decorative: its parent needs a label.
 *
 * @param {string} name
 * @returns {SVGElement}
 */
export function icon(name) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("class", "icon");
  picture.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${SPRITE}#${name}`);
  picture.append(use);
  return picture;
}

/**
 * Create an SVG element.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props ?? {})) setProperty(element, name, value);
  element.append(...nodes(children));
  return element;
}

/** The addresses that may become links. */
const SAFE = /^(https?:\/\/|mailto:)/i;

/** Whether an address may become a link. @param {string} address */
export function isSafe(address) {
  return SAFE.test(address) && URL.canParse(address);
}

/**
 * A link to a web address, or plain text for any other address.
 *
 * @param {string} address
 * @param {string} [label]
 * @returns {Node}
 */
export function link(address, label = address) {
  if (!isSafe(address)) return document.createTextNode(label);
  // whatever the text calls it, where it leads can be seen
  const title = label === address ? null : address;
  return h("a", { href: address, title, rel: "noreferrer noopener", target: "_blank" }, label);
}

/**
 * @param {Child[]} children
 * @returns {Node[]}
 */
function nodes(children) {
  /** @type {Node[]} */
  const found = [];
  for (const child of /** @type {any[]} */ (children).flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    found.push(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return found;
}

/**
 * @param {any} element
 * @param {string} name
 * @param {any} value
 */
function setProperty(element, name, value) {
  if (value === null || value === undefined) return;
  if (name.startsWith("on") && typeof value === "function") {
    element.addEventListener(name.slice(2), value);
  } else if (name === "data") {
    for (const [key, text] of Object.entries(value)) {
      if (text !== null && text !== undefined) element.dataset[key] = String(text);
    }
  } else if (name === "vars") {
    for (const [key, text] of Object.entries(value)) element.style.setProperty(key, String(text));
  } else if (OWN.has(name)) {
    element[name] = value;
  } else if (value === true) {
    element.setAttribute(name, "");
  } else if (value !== false) {
    element.setAttribute(name, String(value));
  }
}

/**
 * The address of a file of the page.
 *
 *     asset("icons/palaver.svg")
 *
 * @param {string} path
 * @returns {string}
 */
export function asset(path) {
  return new URL(`../../${path}`, import.meta.url).pathname;
}
