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
import { preview } from "./message-text.js";
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
    cacheLine(price),
    cost(price.cost),
    pairs(price),
    removed(price),
  );
}

/** What becomes of the provider's cache; one that is gone can't be broken. @param {Priced} price */
function cacheLine({ cacheLost, cost: { cache, model } }) {
  const gone = cache === "cold" || cache === "expired";
  const warn = cacheLost > 0 && !gone;
  const text = gone
    ? t(`views.price.cost.${cache}`, { model: model ?? "" })
    : warn ? t("views.price.cache", { n: cacheLost }) : t("views.price.cacheKept");
  return h("div", { class: `p-line ${warn ? "p-warn" : ""}` }, icon(warn ? "alert" : "check"), h("p", null, text));
}

/** What it costs in money; why that is not known, where it is not. @param {Priced["cost"]} found */
function cost({ model, now, later, paysAfter, reason }) {
  const unknown = now === null || later === null;
  const facts = unknown
    ? [t(`views.price.cost.${reason}`, { model: model ?? "" })]
    : [
        t("views.price.cost", { now: dollars(now), later: dollars(later), model: model ?? "" }),
        paysAfter === null ? t("views.price.pays.never") : paysAfter ? t("views.price.pays", { n: paysAfter }) : t("views.price.pays.now"),
      ];
  const warn = !unknown && paysAfter !== 0;
  return h("div", { class: `p-line p-cost ${warn ? "p-warn" : ""}` }, unknown ? null : icon(warn ? "alert" : "check"), h("p", null, facts.join(" ")));
}

/** An amount with its sign; what is negative is saved. @param {number} amount */
function dollars(amount) {
  const size = Math.abs(amount);
  if (!size) return "$0";
  return `${amount < 0 ? "−" : "+"}$${size.toFixed(size < 0.001 ? 6 : size < 1 ? 4 : 2)}`;
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
          h("span", { class: "v-words" }, preview(text)),
        ),
      ),
    ),
    removedCount > gone.length ? h("p", { class: "muted tiny" }, t("views.price.more", { n: removedCount - gone.length })) : null,
  );
}

customElements.define("pv-price", Price);
