/**
 * The edits that wait until the provider's cache breaks anyway, each with a button that cancels it.
 * Nothing is drawn where none waits.
 *
 * @typedef {import("../core/protocol.js").GetConversationsDeferred} Waiting
 */

import { api, url } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { live } from "../core/live-events.js";
import { canWrite, get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { errorText } from "./panel-view.js";

export class WaitingEdits extends HTMLElement {
  constructor() {
    super();
    /** @type {(() => void)[]} */
    this.stops = [];
  }

  connectedCallback() {
    const reload = () => this.load();
    document.addEventListener("pv-deferred", reload);
    this.stops = [
      live.on("history.edited", ({ conversation }) => {
        if (conversation === get().id) reload();
      }),
      () => document.removeEventListener("pv-deferred", reload),
    ];
    reload();
  }

  disconnectedCallback() {
    this.stops.forEach((stop) => stop());
  }

  async load() {
    const { id } = get();
    if (id === null) return;
    try {
      const found = await api.get(url`conversations/${id}/deferred`);
      if (get().id === id) this.render(found);
    } catch (error) {
      fill(this, h("p", { class: "v-bad", role: "alert" }, errorText(error)));
    }
  }

  /** @param {Waiting} waiting */
  render({ items }) {
    if (!items.length) {
      fill(this);
      return;
    }
    fill(
      this,
      h(
        "section",
        { class: "v-section" },
        h("h2", null, t("views.waiting.title")),
        h("p", { class: "muted small" }, t("views.waiting.hint")),
        h("ul", { class: "h-lines" }, items.map((edit) => this.line(edit))),
      ),
    );
  }

  /** @param {Waiting["items"][number]} edit */
  line({ id, detail, removedCount, tokens, problem }) {
    return h(
      "li",
      null,
      h("span", { class: "grow" }, t("views.waiting.edit", { detail, n: removedCount, tokens })),
      problem ? h("span", { class: "v-bad" }, t("views.waiting.problem")) : null,
      canWrite()
        ? h("button", { type: "button", class: "plain", "aria-label": t("views.waiting.cancelOne", { detail }), data: { focus: `cancel-${id}` }, onclick: () => this.cancel(id) }, t("views.cancel"))
        : null,
    );
  }

  /** @param {string} edit */
  async cancel(edit) {
    try {
      await api.delete(url`conversations/${get().id}/deferred/${edit}`);
      await this.load();
    } catch (error) {
      this.append(h("p", { class: "v-bad", role: "alert" }, errorText(error)));
    }
  }
}

customElements.define("pv-waiting", WaitingEdits);
