/**
 * The editor: the fields of one kind of edit beside its price, which is shown before the edit is
 * applied. It edits the version that was shown when it was opened; if somebody else changed the
 * conversation meanwhile, it shows both sides.
 *
 * @typedef {import("./edit-operations.js").EditDraft} EditDraft
 */

import "./price.js";
import { api, Problem, url } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { announceEdit, notify } from "../shell/toast.js";
import { askAgain } from "../thread/regenerate.js";
import { conflict } from "./edit-conflict.js";
import { FORMS } from "./edit-forms.js";
import { operationOf, unreadableField } from "./edit-operations.js";
import { errorText } from "./panel-view.js";

/** The price in one line, for small screens. @param {import("./price.js").Priced} price */
const inBrief = ({ before, after, cacheLost, pairsBroken }) =>
  [
    t("views.price.brief.messages", { before: before.messages, after: after.messages }),
    t("views.price.brief.tokens", { before: before.tokens, after: after.tokens }),
    cacheLost ? t("views.price.brief.cache", { n: cacheLost }) : "",
    pairsBroken.length ? t("views.price.brief.pairs", { n: pairsBroken.length }) : "",
  ]
    .filter(Boolean)
    .join(" · ");

/** Edits of the whole conversation; the others are about one message. */
const WHOLE = Object.freeze(["truncate", "delete", "filter", "clear"]);

export class Editor extends HTMLElement {
  constructor() {
    super();
    /** @type {EditDraft} */
    this.draft = { action: "truncate" };
    /** The version that the reader sees. */
    this.version = 0;
    this.busy = false;
    /** @type {() => void} */
    this.close = () => {};
  }

  /**
   * @param {EditDraft} draft
   * @param {number | undefined} version  whose messages are on the screen
   * @param {() => void} close
   */
  begin(draft, version, close) {
    this.draft = draft;
    this.close = close;
    this.version = version ?? get().head?.version ?? 0;
    this.draw();
  }

  get price() {
    return /** @type {import("./price.js").Price} */ (this.querySelector("pv-price"));
  }

  draw() {
    const { draft } = this;
    const changed = () => this.changed();
    const length = get().head?.length ?? 0;
    /** @type {HTMLFormElement} */
    const form = h(
      "form",
      {
        class: "e-form",
        // where no field has the focus, Enter does what was asked for
        tabindex: "-1",
        autofocus: draft.action === "delete",
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          this.apply();
        },
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
          if (event.key !== "Enter") return;
          if (event.ctrlKey || event.metaKey) this.apply();
          else if (event.target === form) this.eager();
        },
      },
      h(
        "div",
        { class: "e-body" },
        h("div", { class: "e-fields" }, get().stepping ? h("p", { class: "notice e-stepping", role: "status" }, t("views.edit.stepping")) : null, WHOLE.includes(draft.action) ? this.kinds() : null, FORMS[draft.action](draft, changed, length)),
        h("pv-price", null),
      ),
      h("p", { class: "e-problem", role: "alert", hidden: true }),
      h(
        "footer",
        { class: "dialog-foot e-foot" },
        h("p", { class: "e-brief", "aria-hidden": "true" }),
        h("button", { type: "button", onclick: () => this.close() }, t("views.cancel")),
        h("button", { type: "button", class: "e-later", disabled: true, title: t("views.edit.laterHint"), onclick: () => this.apply(true) }, t("views.edit.later")),
        h("button", { type: "submit", class: "primary e-apply", disabled: true }, t(`views.edit.${draft.action}.do`)),
      ),
    );
    form.addEventListener("pv-priced", () => this.ready());
    fill(this, form);
    this.changed();
  }

  /** What to do with the conversation as a whole. */
  kinds() {
    return h(
      "fieldset",
      { class: "e-kinds" },
      h("legend", { class: "only-spoken" }, t("views.edit.kind")),
      WHOLE.map((action) =>
        h(
          "label",
          { class: "e-kind" },
          h("input", {
            type: "radio",
            name: "kind",
            value: action,
            checked: action === this.draft.action,
            onchange: () => this.become(action),
          }),
          h("span", null, t(`views.edit.${action}.name`)),
        ),
      ),
    );
  }

  /** @param {string} action */
  become(action) {
    this.draft = { ...this.draft, action };
    this.draw();
    const chosen = this.querySelector(`input[name="kind"][value="${action}"]`);
    if (chosen instanceof HTMLElement) chosen.focus();
  }

  /** Ask for the price of the changed draft. */
  changed() {
    const broken = unreadableField(this.draft);
    this.say(broken ? t("views.edit.tool.broken", { tool: broken.tool }) : "");
    this.price.operation = operationOf(this.draft);
  }

  ready() {
    const apply = /** @type {HTMLButtonElement} */ (this.querySelector(".e-apply"));
    const later = /** @type {HTMLButtonElement} */ (this.querySelector(".e-later"));
    const { priced } = this.price;
    apply.disabled = this.busy || priced === null;
    later.disabled = apply.disabled || !priced?.cacheLost;
    const brief = /** @type {HTMLElement} */ (this.querySelector(".e-brief"));
    brief.textContent = priced === null ? "" : inBrief(priced);
  }

  /** Apply the edit as soon as its price is known. */
  eager() {
    if (this.price.priced !== null) this.apply();
    else this.querySelector("form")?.addEventListener("pv-priced", () => this.apply(), { once: true });
  }

  /** @param {string} text */
  say(text) {
    const place = /** @type {HTMLElement} */ (this.querySelector(".e-problem"));
    place.hidden = !text;
    place.textContent = text;
  }

  /** @param {boolean} [later]  when the provider's cache breaks anyway */
  async apply(later = false) {
    const operation = operationOf(this.draft);
    if (operation === null || this.busy || this.price.priced === null) return;
    this.busy = true;
    this.ready();
    try {
      await (later ? this.defer(operation) : this.send(operation, this.version));
      this.close();
    } catch (error) {
      if (error instanceof Problem && error.status === 412 && error.body.version !== undefined)
        await this.clashed(operation, error);
      else this.say(errorText(error));
    } finally {
      this.busy = false;
      if (this.querySelector(".e-apply")) this.ready();
    }
  }

  /**
   * @param {Record<string, any>} operation
   * @param {number} version
   */
  async send(operation, version) {
    if (this.draft.action === "resend") {
      await askAgain(operation.operations, version);
      return;
    }
    const edited = await api.post(url`conversations/${get().id}/operations`, { operation }, { version });
    announceEdit(t(`views.edit.${this.draft.action}.done`), edited.version);
  }

  /** @param {Record<string, any>} operation */
  async defer(operation) {
    await api.post(url`conversations/${get().id}/deferred`, { operation }, { version: this.version });
    notify({ text: t("views.edit.laterDone") });
    document.dispatchEvent(new CustomEvent("pv-deferred"));
  }

  /**
   * Show both sides after somebody else changed the conversation, and let the reader choose.
   *
   * @param {Record<string, any>} operation
   * @param {Problem} problem
   */
  async clashed(operation, problem) {
    const newest = problem.body.version;
    try {
      const query = { before: this.version, after: newest, limit: 10_000 };
      const theirs = await api.get(url`conversations/${get().id}/diff`, { query });
      fill(
        this,
        conflict({
          draft: this.draft,
          operation,
          theirs,
          newest,
          cancel: () => this.close(),
          again: async (moved) => {
            await this.send(moved, newest);
            this.close();
          },
        }),
      );
      const first = this.querySelector("h3");
      if (first instanceof HTMLElement) first.focus();
    } catch (error) {
      this.say(errorText(error));
    }
  }
}

customElements.define("pv-editor", Editor);
