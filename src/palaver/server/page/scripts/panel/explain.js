/**
 * The view that explains what an agent sees: for any name in the conversation, with limits that the
 * reader can change.
 *
 * @typedef {import("../core/protocol.js").GetConversationsExplain} Explained
 * @typedef {{names: string[], seen?: Explained, error?: unknown}} Loaded
 */

import { api, url } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { contextReport } from "./agent-context.js";
import { choice, field, number } from "./edit-forms.js";
import { empty, failure, PanelView } from "./panel-view.js";

const TYPES = Object.freeze(["", "claude-code", "openai-codex", "google-gemini", "plain"]);
const PAUSE = 250;

/** @extends {PanelView<Loaded>} */
export class ExplainView extends PanelView {
  constructor() {
    super();
    /** @type {Record<string, any>} */
    this.asked = { agent: "", type: "", window: NaN, maxBytes: NaN, visibility: "" };
    this.typing = 0;
  }

  /** Load the names of recent speakers, and the explanation for the chosen one. @param {AbortSignal} signal */
  async load(signal) {
    /** @type {import("../core/protocol.js").GetConversationsMessages} */
    const recent = await api.get(url`conversations/${get().id}/messages`, { query: { start: -200 }, signal });
    const names = new Set(recent.items.flatMap(({ message }) => message.speaker?.roleName || []));
    if (!this.asked.agent) this.asked.agent = [...names].at(-1) ?? "";
    const seen = this.asked.agent ? await this.ask(signal) : null;
    return { names: [...names], ...seen };
  }

  begin() {
    this.asked.agent = "";
    fill(this);
    super.begin();
  }

  /** @param {AbortSignal} [signal] */
  async ask(signal) {
    const { agent, type, window, maxBytes, visibility } = this.asked;
    const whole = (/** @type {number} */ value) => (Number.isInteger(value) && value >= 0 ? value : null);
    const query = { agent, type: type || null, window: whole(window), maxBytes: whole(maxBytes), visibility: visibility || null };
    try {
      return { seen: await api.get(url`conversations/${get().id}/explain`, { query, signal }) };
    } catch (error) {
      if (signal?.aborted) throw error;
      return { error };
    }
  }

  /** @param {Loaded} data */
  render({ names, seen, error }) {
    if (!this.querySelector(".x-form"))
      fill(this, h("div", { class: "v-scroll" }, this.form(), h("div", { class: "x-result", "aria-live": "polite" })));
    const known = this.querySelector("datalist");
    if (known) fill(known, names.map((/** @type {string} */ name) => h("option", { value: name })));
    const result = /** @type {HTMLElement} */ (this.querySelector(".x-result"));
    if (error) fill(result, failure(error));
    else if (seen) fill(result, contextReport(seen));
    else fill(result, empty(t("views.explain.none"), t("views.explain.noneHint")));
  }

  form() {
    const { asked } = this;
    const put = (/** @type {string} */ name) => (/** @type {any} */ value) => {
      asked[name] = value;
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.reload(), PAUSE);
    };
    return h(
      "form",
      { class: "x-form", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      field(
        t("views.explain.agent"),
        h("input", { type: "text", value: asked.agent, list: "agent-names", autocomplete: "off", oninput: (/** @type {any} */ event) => put("agent")(event.target.value.trim()) }),
      ),
      h("datalist", { id: "agent-names" }),
      field(t("views.explain.type"), choice(TYPES.map((type) => [type, type ? type : t("views.explain.own")]), asked.type, put("type"))),
      field(t("views.explain.window"), number(asked.window, { min: 0, placeholder: t("views.explain.default") }, put("window"))),
      field(t("views.explain.maxBytes"), number(asked.maxBytes, { min: 0, placeholder: t("views.explain.default") }, put("maxBytes"))),
      field(
        t("views.explain.visibility"),
        choice([["", t("views.explain.default")], ["all", t("views.explain.all")], ["addressed", t("views.explain.addressed")]], asked.visibility, put("visibility")),
      ),
    );
  }
}

customElements.define("pv-explain", ExplainView);
