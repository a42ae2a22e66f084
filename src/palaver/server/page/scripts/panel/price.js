/**
 * What an edit would remove and cost, before it is applied. It asks the server again a moment after
 * the operation has changed.
 *
 * @typedef {import("../core/protocol.js").PostConversationsPrice} Priced
 */

import { api, Problem, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { firstWords } from "./message-text.js";
import { errorText } from "./panel-view.js";

const PAUSE = 180;
const SHOWN = 6;

export class Price extends HTMLElement {
  constructor() {
    super();
    this.timer = 0;
    /** @type {AbortController | null} */
    this.asking = null;
    /** @type {Priced | null} */
    this.priced = null;
    /** @type {import("./edit-operations.js").Operation | null} */
    this.wanted = null;
  }

  connectedCallback() {
    this.setAttribute("role", "status");
    this.setAttribute("aria-label", t("views.price.label"));
    if (!this.childElementCount) this.say(t("views.price.waiting"));
  }

  disconnectedCallback() {
    clearTimeout(this.timer);
    this.asking?.abort();
  }

  /** The operation to price; null says that the form is not complete. @param {import("./edit-operations.js").Operation | null} operation */
  set operation(operation) {
    const text = JSON.stringify(operation);
    if (text === JSON.stringify(this.wanted) && this.priced) return;
    this.wanted = operation;
    this.settle(null);
    clearTimeout(this.timer);
    this.asking?.abort();
    if (operation === null) {
      this.say(t("views.price.incomplete"));
      return;
    }
    this.classList.add("asking");
    this.timer = setTimeout(() => this.ask(operation), PAUSE);
  }

  /** @param {import("./edit-operations.js").Operation | null} operation */
  async ask(operation) {
    this.asking = new AbortController();
    const { signal } = this.asking;
    try {
      const priced = await api.post(url`conversations/${get().id}/price`, operation?.operations ? operation : { operation }, { signal });
      if (signal.aborted) return;
      fill(this, lines(priced));
      this.settle(priced);
    } catch (error) {
      if (signal.aborted) return;
      this.say(errorText(error), error instanceof Problem ? "v-bad" : "");
    } finally {
      if (!signal.aborted) this.classList.remove("asking");
    }
  }

  /** @param {string} text @param {string} [kind] */
  say(text, kind = "muted") {
    this.classList.remove("asking");
    fill(this, h("p", { class: `p-say ${kind}` }, text));
  }

  /** @param {Priced | null} priced */
  settle(priced) {
    this.priced = priced;
    this.dispatchEvent(new CustomEvent("pv-priced", { detail: priced, bubbles: true }));
  }
}

/** @param {Priced} price */
function lines(price) {
  const about = price.source === "estimate" ? "about" : "exact";
  const { before, after } = price;
  return h(
    "div",
    { class: "p-lines" },
    h("h3", { class: "p-title" }, t("views.price.title")),
    line("messages", before.messages, after.messages, describeMessages(price)),
    line("tokens", before.tokens, after.tokens, t(`views.price.tokens.${about}`, {
      freed: price.tokensFreed,
      added: price.tokensAdded,
    })),
    h(
      "div",
      { class: `p-line ${price.cacheLost ? "p-warn" : ""}` },
      icon(price.cacheLost ? "alert" : "check"),
      h("p", null, price.cacheLost ? t("views.price.cache", { n: price.cacheLost }) : t("views.price.cacheKept")),
    ),
    pairs(price),
    removed(price),
  );
}

/**
 * @param {string} name
 * @param {number} before
 * @param {number} after
 * @param {string} text
 */
function line(name, before, after, text) {
  return h(
    "div",
    { class: "p-line p-count" },
    h("p", { class: "p-figure" }, t(`views.price.${name}`), " ", h("b", null, t("views.price.fromTo", { before, after }))),
    h("p", { class: "muted" }, text),
  );
}

/** @param {Priced} price */
function describeMessages({ removedCount, addedCount }) {
  if (!removedCount && !addedCount) return t("views.price.nothing");
  const parts = [];
  if (removedCount) parts.push(t("views.price.out", { n: removedCount }));
  if (addedCount) parts.push(t("views.price.in", { n: addedCount }));
  return parts.join(t("views.price.and"));
}

/** @param {Priced} price */
function pairs({ pairsBroken }) {
  if (!pairsBroken.length)
    return h("div", { class: "p-line" }, icon("check"), h("p", null, t("views.price.pairsKept")));
  return h(
    "div",
    { class: "p-line p-warn" },
    icon("alert"),
    h(
      "div",
      null,
      h("p", null, t("views.price.pairs", { n: pairsBroken.length })),
      h(
        "ul",
        { class: "p-pairs" },
        pairsBroken.map(({ tool, callID, missing }) =>
          h("li", null, h("code", null, tool), " ", t(`views.price.missing.${missing}`), " ", h("span", { class: "muted mono" }, callID)),
        ),
      ),
      h("p", { class: "muted" }, t("views.price.repaired")),
    ),
  );
}

/** @param {Priced} price */
function removed({ removed: gone, removedCount }) {
  if (!gone.length) return null;
  return h(
    "details",
    { class: "p-removed", open: gone.length <= SHOWN },
    h("summary", null, t("views.price.which", { n: removedCount })),
    h(
      "ul",
      { class: "h-lines" },
      gone.map(({ index, role, text }) =>
        h(
          "li",
          { class: "v-gone" },
          h("span", { class: "v-sign", "aria-hidden": "true" }, "−"),
          h("span", { class: "v-where" }, `${index} ${t(`views.role.${role}`)}`),
          h("span", { class: "v-words" }, firstWords(text) || t("views.noText")),
        ),
      ),
    ),
    removedCount > gone.length ? h("p", { class: "muted tiny" }, t("views.price.more", { n: removedCount - gone.length })) : null,
  );
}

customElements.define("pv-price", Price);
