/** The bar above the chat box while messages are selected: how many, and the actions on them. */

import { fill, h, icon } from "../core/dom.js";
import { actions } from "../core/registry.js";
import { get, set, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";
import { fits } from "./message-actions.js";

export class SelectionBar extends HTMLElement {
  /** @type {(() => void)[]} */
  subscriptions = [];

  connectedCallback() {
    this.setAttribute("role", "toolbar");
    this.subscriptions = [watch(["selection", "viewing", "id"], () => this.#draw()), onLanguage(() => this.#draw())];
    this.#draw();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
  }

  #draw() {
    const { selection } = get();
    this.hidden = !selection;
    this.setAttribute("aria-label", t("selection.label"));
    if (!selection) {
      fill(this);
      return;
    }
    const item = document.querySelector("pv-thread")?.itemAt(selection.start);
    const target = item && { ...selection, item };
    const shown = target ? actions().filter((action) => (action.many || selection.stop - selection.start === 1) && action.keys && fits(action, target)).map((action) => ({ ...action, run: () => action.run(target) })) : [];
    fill(
      this,
      h("span", { class: "small grow" }, t("selection.count", { n: selection.stop - selection.start })),
      ...shown.map(({ label, icon: name, danger, run }) =>
        h("button", { type: "button", class: danger ? "danger-text" : "", onclick: run }, name ? icon(name) : null, t(label)),
      ),
      h("button", { type: "button", class: "quiet", "aria-label": t("selection.clear"), onclick: () => set({ selection: null }) }, icon("x")),
    );
  }
}

customElements.define("pv-selection", SelectionBar);
