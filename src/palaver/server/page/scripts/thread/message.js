/** One message of the thread: its speaker and addressees, its parts, its marks and its actions. */

import { fill, h, icon } from "../core/dom.js";
import { redraw } from "../core/redraw.js";
import { onCalls } from "../core/tool-calls.js";
import { clock, t } from "../locales/locale.js";
import { openMenu } from "../shell/menu.js";
import { alternativesBar, alternativesTo, onAlternatives } from "./alternatives.js";
import { isFormatted, markdown } from "./markdown.js";
import { entriesFor, quickFor } from "./message-actions.js";
import { partElement } from "./message-parts.js";
import { noteElement } from "./notes.js";
import { prose } from "./text.js";

/** @typedef {import("../core/api.js").Item} Item */

/** The metadata key of what is left of an erased message. */
const ERASED = "palaver.erased";

export class MessageRow extends HTMLElement {
  /** @type {Item | undefined} what is shown; undefined until it has arrived */
  item = undefined;
  index = -1;
  /** @type {string | undefined} the id of the message that was drawn last */
  drawn = undefined;
  /** The alternatives that were drawn last. */
  alternatives = "";
  unsubscribe = () => {};

  connectedCallback() {
    this.classList.add("message");
    this.setAttribute("role", "article");
    this.tabIndex = -1;
    this.addEventListener("click", touched);
    const calls = onCalls(() => this.#hasCalls() && redraw(this, () => this.#draw()));
    const others = onAlternatives(() => this.alternatives !== this.#others() && redraw(this, () => this.#draw()));
    this.unsubscribe = () => (calls(), others());
  }

  disconnectedCallback() {
    this.unsubscribe();
  }

  /**
   * Show an item, or a placeholder until it has arrived.
   *
   * @param {Item | undefined} item
   * @param {number} index
   * @param {number} total
   */
  show(item, index, total) {
    this.setAttribute("aria-posinset", String(index + 1));
    this.setAttribute("aria-setsize", String(total));
    if (this.item === item && this.index === index && this.childElementCount) return;
    // the same message in another version: nothing to draw, and what is unfolded stays so
    const same = item && this.item && JSON.stringify(item) === JSON.stringify(this.item);
    this.item = item;
    this.index = index;
    if (!same) this.#draw();
  }

  /** Draw the message again, in another language or with other states of its calls. */
  redraw() {
    this.#draw();
  }

  #draw() {
    const { item, index } = this;
    if (!item) {
      this.dataset.role = "loading";
      this.setAttribute("aria-busy", "true");
      this.setAttribute("aria-label", t("message.loading", { n: index + 1 }));
      fill(this, h("div", { class: "bones" }, h("i"), h("i"), h("i")));
      return;
    }
    const { message } = item;
    const open = this.drawn === message.id ? touchedFolds(this) : [];
    this.drawn = message.id;
    this.alternatives = this.#others();
    this.removeAttribute("aria-busy");
    this.dataset.role = message.role;
    this.setAttribute("aria-label", t("message.label", { n: item.index + 1, who: whoOf(message) }));
    fill(this, header(item), h("div", { class: "message-body" }, ...body(item)), noteElement(message.id));
    this.querySelectorAll("details").forEach((fold, at) => {
      if (open[at] === undefined) return;
      fold.open = /** @type {boolean} */ (open[at]);
      fold.dataset.touched = "yes";
    });
  }

  #hasCalls() {
    return this.querySelector(".tool-card") !== null;
  }

  #others() {
    return JSON.stringify(alternativesTo(this.item) ?? null);
  }
}

/** @param {MouseEvent} event */
function touched(event) {
  const summary = /** @type {HTMLElement} */ (event.target).closest("summary");
  if (summary?.parentElement) summary.parentElement.dataset.touched = "yes";
}

/** Which folds the reader opened or closed, by position; undefined for the others. @param {HTMLElement} row */
function touchedFolds(row) {
  return [...row.querySelectorAll("details")].map((fold) => (fold.dataset.touched ? fold.open : undefined));
}

/** @param {import("../core/api.js").Message} message */
function whoOf(message) {
  return message.speaker?.roleName ?? t(`role.${message.role}`);
}

/** @param {Item} item */
function header(item) {
  const { message, marks, tokens, index } = item;
  const to = message.routing?.resolvedAddressees ?? [];
  const model = message.info?.model?.modelID;
  return h(
    "header",
    { class: "message-head" },
    h("span", { class: "who" }, whoOf(message)),
    message.speaker ? h("span", { class: "muted tiny" }, t(`role.${message.role}`)) : null,
    to.length ? h("span", { class: "to muted" }, icon("right"), to.join(", ")) : null,
    model ? h("span", { class: "muted tiny clip" }, model) : null,
    marks?.map((name) => h("span", { class: "chip accent mark" }, icon("mark"), name)),
    alternativesBar(item),
    h("span", { class: "grow" }),
    h("span", { class: "facts muted tiny" }, facts(item, tokens)),
    h("time", { class: "muted tiny", datetime: new Date(message.timestamp).toISOString(), title: new Date(message.timestamp).toLocaleString() }, clock(message.timestamp)),
    h("span", { class: "place muted tiny mono" }, `#${index}`),
    tools(item),
  );
}

/**
 * @param {Item} item
 * @param {number | undefined} tokens
 */
function facts(item, tokens) {
  return [item.handle, tokens === undefined ? null : t("message.tokens", { n: tokens })].filter(Boolean).join(" · ");
}

/** @param {Item} item */
function tools(item) {
  const more = h(
    "button",
    {
      type: "button",
      class: "quiet",
      "aria-label": t("message.more"),
      "aria-haspopup": "menu",
      "aria-expanded": "false",
      onclick: (/** @type {Event} */ event) => openMenu(/** @type {HTMLElement} */ (event.currentTarget), entriesFor(item)),
    },
    icon("more"),
  );
  const quick = quickFor(item).map(({ label, icon: name, run }) =>
    h("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick: run }, icon(name ?? "more")),
  );
  return h("span", { class: "message-tools" }, ...quick, more);
}

/** @param {Item} item */
function body({ message, orphans }) {
  if (message.metadata && ERASED in message.metadata) {
    return [h("p", { class: "row muted small" }, icon("erase"), t("message.erased"))];
  }
  const { content, info } = message;
  const write = isFormatted(message) ? markdown : prose;
  const parts = typeof content === "string" ? [content ? write(content) : null] : content.map((part) => partElement(part, orphans, write));
  const shown = parts.filter(Boolean);
  if (!shown.length) shown.push(h("p", { class: "muted small" }, t("message.empty")));
  if (info?.role !== "assistant") return shown;
  if (isInterrupted(message)) shown.push(interruptedNote());
  if (info.error) {
    const said = String(info.error.message ?? info.error.data?.message ?? info.error.name ?? "");
    shown.push(h("p", { class: "row small danger-text" }, icon("alert"), said || t("failed")));
  }
  return shown;
}

/** Whether an answer ended before it was complete. @param {import("../core/api.js").Message} message */
export function isInterrupted({ info }) {
  return info?.role === "assistant" && info.finish === "interrupted";
}

/** What is said below such an answer. */
export function interruptedNote() {
  return h("p", { class: "row small cut-off" }, icon("interrupted"), t("message.interrupted"));
}

customElements.define("pv-message", MessageRow);
