/** What is shown in place of the thread when no conversation is open or the open one is empty. */

import { asset, fill, h, icon } from "../core/dom.js";
import { canWrite, get, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";
import { begin } from "./conversation-actions.js";

export class Welcome extends HTMLElement {
  /** @type {(() => void)[]} */
  subscriptions = [];

  connectedCallback() {
    this.subscriptions = [watch(["id", "head", "viewing", "stepping"], () => this.#draw()), onLanguage(() => this.#draw())];
    this.#draw();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
  }

  #draw() {
    const { id, head, viewing, stepping } = get();
    const nothing = head !== null && head.length === 0 && viewing === null && !stepping;
    this.hidden = id !== null && !nothing;
    fill(this, this.hidden ? null : id === null ? nowhere() : silence());
  }
}

function nowhere() {
  const fresh = h("button", { type: "button", class: "primary", onclick: begin }, icon("plus"), t("sidebar.new"));
  const drawer = h("button", { type: "button", class: "drawer-button", onclick: () => document.querySelector("pv-app")?.setAttribute("data-drawer", "") }, icon("menu"), t("sidebar.label"));
  return h(
    "div",
    { class: "empty" },
    h("img", { src: asset("icons/palaver.svg"), alt: "", width: 44, height: 44 }),
    h("h1", null, t("welcome.title")),
    h("p", null, t("welcome.text")),
    h("div", { class: "row" }, drawer, canWrite() ? fresh : null),
    h("p", { class: "small" }, h("kbd", null, "?"), " ", t("welcome.keys")),
  );
}

function silence() {
  return h("div", { class: "empty" }, h("h2", null, t("silence.title")), h("p", null, t(canWrite() ? "silence.text" : "silence.readonly")));
}

customElements.define("pv-welcome", Welcome);
