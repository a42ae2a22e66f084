/** The bar over the chat box while messages are chosen: how many, and what can be done with them. */

import { fill, h, icon } from "./dom.js";
import { fits } from "./message-actions.js";
import { get, set, watch } from "./state.js";
import { actions } from "./views.js";
import { onLanguage, t } from "./words.js";

class Selection extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "toolbar");
    this.quiet = [watch(["selection", "viewing", "id"], () => this.#draw()), onLanguage(() => this.#draw())];
    this.#draw();
  }

  disconnectedCallback() {
    this.quiet?.forEach((stop) => stop());
  }

  #draw() {
    const { selection } = get();
    this.hidden = !selection;
    this.setAttribute("aria-label", t("selection.label"));
    if (!selection) {
      fill(this);
      return;
    }
    const item = /** @type {any} */ (document.querySelector("pv-thread"))?.itemAt(selection.start);
    const target = { ...selection, item };
    const shown = item ? actions().filter((action) => (action.many || selection.stop - selection.start === 1) && action.keys && fits(action, target)) : [];
    fill(
      this,
      h("span", { class: "small grow" }, t("selection.count", { n: selection.stop - selection.start })),
      ...shown.map(({ label, icon: name, danger, run }) =>
        h("button", { type: "button", class: danger ? "danger-text" : "", onclick: () => run(target) }, name ? icon(name) : null, t(label)),
      ),
      h("button", { type: "button", class: "quiet", "aria-label": t("selection.clear"), onclick: () => set({ selection: null }) }, icon("x")),
    );
  }
}

customElements.define("pv-selection", Selection);
