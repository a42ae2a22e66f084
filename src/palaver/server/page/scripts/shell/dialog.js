/**
 * Modal dialogs, on the native dialog element. The focus stays inside and returns when the dialog
 * is closed.
 */

import { fill, h, icon } from "../core/dom.js";
import { t } from "../locales/locale.js";

export class Dialog extends HTMLElement {
  box = h("dialog", {
    class: "dialog",
    onclose: () => this.remove(),
    onclick: (/** @type {MouseEvent} */ event) => {
      if (event.target === this.box) this.close(); // a click beside it
    },
  });

  connectedCallback() {
    if (!this.box.isConnected) this.append(this.box);
  }

  /**
   * Fill the dialog and open it. Returns what it was closed with; an empty text if it was dismissed.
   *
   * @param {{title: string, wide?: boolean}} about
   * @param {...import("../core/dom.js").Child} children
   * @returns {Promise<string>}
   */
  ask({ title, wide = false }, ...children) {
    document.body.append(this);
    const { box } = this;
    const heading = h("h2", { id: `title-${++made}` }, title);
    const close = h(
      "button",
      { type: "button", class: "quiet", "aria-label": t("close"), onclick: () => this.close() },
      icon("x"),
    );
    fill(box, h("header", { class: "dialog-head" }, heading, close), ...children);
    box.classList.toggle("wide", wide);
    box.setAttribute("aria-labelledby", heading.id);
    box.showModal();
    return new Promise((resolve) => {
      box.addEventListener("close", () => resolve(box.returnValue), { once: true });
    });
  }

  /** @param {string} [answer] */
  close(answer = "") {
    this.box.close(answer);
  }
}

let made = 0;

customElements.define("pv-dialog", Dialog);

/**
 * An empty dialog, to be opened with `ask`.
 *
 * @returns {Dialog}
 */
export function dialog() {
  return document.createElement("pv-dialog");
}

/**
 * Ask for confirmation.
 *
 * @param {{title: string, text: string, action: string, danger?: boolean}} question
 * @returns {Promise<boolean>}
 */
export async function confirm({ title, text, action, danger = false }) {
  const asked = dialog();
  const answer = await asked.ask(
    { title },
    h("p", { class: "dialog-body" }, text),
    buttons(asked, h("button", { type: "button", class: danger ? "danger" : "primary", autofocus: true,
      onclick: () => asked.close("yes") }, action)),
  );
  return answer === "yes";
}

/**
 * Ask for a text: of one line, or in a field of several `lines`. A text for which `check` returns a
 * problem is not taken. Returns null if the dialog was dismissed.
 *
 * @param {{title: string, label: string, value?: string, action: string, hint?: string, lines?: number, check?: (value: string) => string | null}} question
 * @returns {Promise<string | null>}
 */
export async function askText({ title, label, value = "", action, hint, lines = 1, check }) {
  const asked = dialog();
  const field =
    lines > 1
      ? h("textarea", { value, rows: lines, class: "mono", autofocus: true, spellcheck: "false" })
      : h("input", { type: "text", value, autofocus: true, autocomplete: "off" });
  const problem = h("p", { class: "e-problem", role: "alert", hidden: true });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const wrong = check?.(field.value) ?? null;
    problem.hidden = wrong === null;
    problem.textContent = wrong ?? "";
    if (wrong === null) asked.close("yes");
  };
  const form = h(
    "form",
    { onsubmit: submit },
    h("label", { class: "field dialog-body" }, h("span", null, label), field, hint ? h("small", { class: "muted" }, hint) : null, problem),
    buttons(asked, h("button", { type: "submit", class: "primary" }, action)),
  );
  const answer = asked.ask({ title }, form);
  field.select();
  return (await answer) === "yes" ? field.value : null;
}

/**
 * The buttons below a dialog: one that dismisses it, and its action.
 *
 * @param {Dialog} asked
 * @param {HTMLElement} action
 */
export function buttons(asked, action) {
  const cancel = h("button", { type: "button", onclick: () => asked.close() }, t("cancel"));
  return h("footer", { class: "dialog-foot" }, cancel, action);
}
