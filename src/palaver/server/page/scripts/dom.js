/**
 * Elements, made from data. Text only ever becomes a text node: nothing in this file, and so
 * nothing on the page, turns a string into markup.
 *
 * @typedef {Node | string | number | null | undefined | false | Child[]} Child
 */

import { file } from "./files.js";

const SVG = "http://www.w3.org/2000/svg";
const SPRITE = file("icons/icons.svg");

/** Properties that are set on the element itself, since their attribute means something else. */
const OWN = new Set(["value", "checked", "disabled", "hidden", "selected", "open", "indeterminate"]);

/**
 * Make an element.
 *
 *     h("button", { class: "quiet", onclick: close, "aria-label": t("close") }, icon("x"))
 *
 * `on…` takes a listener, `data` an object of data attributes, `vars` an object of CSS variables;
 * `true` sets an empty attribute, and `null`, `undefined` and `false` set none.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) setProperty(element, name, value);
  element.append(...nodes(children));
  return element;
}

/**
 * Put children in the place of what an element holds.
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
 * One icon of the sprite; the name says which symbol. It is decoration: give what holds it a name.
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
 * An element of SVG, for pictures that are drawn from data.
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

/** Where a link may lead: nowhere but the web, whatever the text says. */
const SAFE = /^https?:\/\//i;

/**
 * A link to the web, or the bare text where the address is anything else.
 *
 * @param {string} address
 * @param {string} [label]
 * @returns {Node}
 */
export function link(address, label = address) {
  if (!SAFE.test(address) || !URL.canParse(address)) return document.createTextNode(label);
  // whatever the text calls it, where it leads can be seen
  const title = label === address ? null : address;
  return h("a", { href: address, title, rel: "noreferrer noopener", target: "_blank" }, label);
}

/**
 * @param {Child[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  const found = [];
  for (const child of children.flat(Infinity)) {
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
