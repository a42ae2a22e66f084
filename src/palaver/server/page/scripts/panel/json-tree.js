/**
 * JSON as it is sent, indented and foldable. Every value knows its path, so that it can be found
 * and revealed by its path. Deep and long values are drawn when they are opened, so that a request
 * of megabytes costs only what is visible.
 */

import { h } from "../core/dom.js";
import { t } from "../locales/locale.js";
import { visible } from "../thread/text.js";

const LONG = 1200;
const OPEN_DEPTH = 5;
const MANY = 60;

/**
 * @param {unknown} value
 * @param {{marked?: (path: string) => boolean}} [options]  which paths are spoken of
 */
export function jsonTree(value, { marked = () => false } = {}) {
  return h("div", { class: "j-tree" }, node(value, "$", null, 0, marked, true));
}

/**
 * Open everything on the way to a path. Returns the line of the path.
 *
 * @param {HTMLElement} root
 * @param {string} path
 * @returns {HTMLElement | null}
 */
export function reveal(root, path) {
  const steps = stepsOf(path);
  let here = "$";
  /** @type {HTMLElement | null} */
  let found = null;
  for (const step of ["", ...steps]) {
    here += step;
    const line = /** @type {HTMLElement | null} */ (root.querySelector(`[data-path="${CSS.escape(here)}"]`));
    if (!line) break;
    found = line;
    const fold = line.querySelector(":scope > details");
    if (fold instanceof HTMLDetailsElement) unfold(fold);
  }
  return found;
}

/** The steps of a path: `$.messages[3].content` is `.messages`, `[3]`, `.content`. @param {string} path */
export function stepsOf(path) {
  return path.replace(/^\$/u, "").match(/\.[^.[\]]+|\[[^\]]*\]/gu) ?? [];
}

/** @param {HTMLDetailsElement} fold */
function unfold(fold) {
  fold.open = true;
  fold.dispatchEvent(new CustomEvent("wanted"));
}

/**
 * @param {unknown} value
 * @param {string} path
 * @param {string | null} name
 * @param {number} depth
 * @param {(path: string) => boolean} marked
 * @param {boolean} last
 * @returns {HTMLElement}
 */
function node(value, path, name, depth, marked, last) {
  const key = name === null ? null : [h("span", { class: "j-key" }, JSON.stringify(name)), ": "];
  const comma = last ? "" : ",";
  const line = h("div", { class: marked(path) ? "j-line j-marked" : "j-line", data: { path }, tabindex: marked(path) ? "-1" : null });
  if (value !== null && typeof value === "object") line.append(folded(value, path, key, depth, marked, comma));
  else line.append(...plain(value, key, comma));
  return line;
}

/**
 * @param {object} value
 * @param {string} path
 * @param {any} key
 * @param {number} depth
 * @param {(path: string) => boolean} marked
 * @param {string} comma
 */
function folded(value, path, key, depth, marked, comma) {
  const list = Array.isArray(value);
  const entries = list ? value.map((each, index) => [index, each]) : Object.entries(value);
  const [open, close] = list ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return h("span", null, key, `${open}${close}${comma}`);
  const body = h("div", { class: "j-body" });
  let drawn = 0;
  const more = h("button", { type: "button", class: "plain", onclick: () => draw() }, t("views.request.more"));
  const draw = () => {
    more.remove();
    const stop = Math.min(entries.length, drawn + MANY);
    for (; drawn < stop; drawn += 1) {
      const [step, each] = entries[drawn];
      const inner = list ? `${path}[${step}]` : `${path}.${step}`;
      body.append(node(each, inner, list ? null : String(step), depth + 1, marked, drawn === entries.length - 1));
    }
    if (drawn < entries.length) body.append(more);
  };
  const all = () => {
    while (drawn < entries.length) draw();
  };
  const isOpen = depth < OPEN_DEPTH;
  const fold = h(
    "details",
    { open: isOpen, ontoggle: (/** @type {any} */ event) => event.target.open && !drawn && draw() },
    h("summary", null, key, open, h("span", { class: "j-folded" }, ` ${t(list ? "views.request.items" : "views.request.fields", { n: entries.length })} ${close}${comma}`)),
    body,
    h("span", { class: "j-close" }, `${close}${comma}`),
  );
  fold.addEventListener("wanted", all);
  if (isOpen) draw();
  return fold;
}

/**
 * @param {unknown} value
 * @param {any} key
 * @param {string} comma
 * @returns {any[]}
 */
function plain(value, key, comma) {
  const text = JSON.stringify(value) ?? "null";
  const kind = typeof value === "string" ? "j-string" : "j-word";
  const whole = h("span", { class: kind }, visible(text.length > LONG ? `${text.slice(0, LONG)}…` : text));
  const rest =
    text.length > LONG
      ? h(
          "button",
          {
            type: "button",
            class: "plain",
            onclick: (/** @type {any} */ event) => {
              whole.replaceChildren(...visible(text));
              event.target.remove();
            },
          },
          t("views.request.whole", { n: text.length - LONG }),
        )
      : null;
  return [h("span", { class: "j-plain" }, key, whole, comma, rest)];
}
