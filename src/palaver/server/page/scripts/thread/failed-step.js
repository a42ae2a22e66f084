/**
 * A step that failed or was refused, below the thread of its conversation: the reason, and a button
 * that tries again. It stays until the next step begins or the reader closes it, also when the page
 * is loaded again.
 *
 * @typedef {import("../core/state.js").Failure} Failure
 */

import { fill, h, icon } from "../core/dom.js";
import { redraw } from "../core/redraw.js";
import { canWrite, get, set, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";

const STORAGE_KEY = "palaver.failures";

/**
 * Say that a step of a conversation failed; null says that nothing is wrong with it now.
 *
 * @param {string} id
 * @param {Failure | null} failure
 */
export function setFailure(id, failure) {
  const { [id]: before, ...others } = get().failures;
  if (!before && !failure) return;
  set({ failures: failure ? { ...others, [id]: failure } : others });
  sessionStorage.setItem(STORAGE_KEY, JSON.stringify(get().failures));
}

export class FailedStep extends HTMLElement {
  /** @type {(() => void)[]} */
  subscriptions = [];

  connectedCallback() {
    this.setAttribute("role", "alert");
    const draw = () => redraw(this, () => this.#draw());
    this.subscriptions = [watch(["id", "failures", "viewing", "stepping"], draw), onLanguage(draw)];
    set({ failures: JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "{}") });
    this.#draw();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
  }

  #draw() {
    const { id, failures, viewing, stepping } = get();
    const failure = id && viewing === null && !stepping ? failures[id] : undefined;
    this.hidden = !failure;
    fill(this);
    if (!failure || !id) return;
    const retry = () => document.querySelector("pv-composer")?.retry(failure);
    fill(
      this,
      h(
        "div",
        { class: "failed-step" },
        icon("alert"),
        h("div", { class: "grow" }, h("p", null, h("strong", null, t(failure.stored ? "step.failed" : "composer.failed"))), failure.detail ? h("p", { class: "small" }, failure.detail) : null),
        canWrite() ? h("button", { type: "button", onclick: retry }, icon("redo"), t("step.retry")) : null,
        h("button", { type: "button", class: "quiet", "aria-label": t("close"), title: t("close"), onclick: () => setFailure(id, null) }, icon("x")),
      ),
    );
  }
}

customElements.define("pv-failed-step", FailedStep);
