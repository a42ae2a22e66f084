/**
 * The chat box: say something, choose who answers, allow tools, stop. Below it stands what the
 * next request would hold.
 */

import { api, url } from "./api.js";
import { chosenModel } from "./choosing-model.js";
import { refresh } from "./conversation.js";
import { fill, h, icon } from "./dom.js";
import { openMenu } from "./pv-menu.js";
import { attempt } from "./pv-toast.js";
import { redraw } from "./redrawing.js";
import { canWrite, get, set, watch } from "./state.js";
import { onLanguage, short, t } from "./words.js";

const KEPT_TOOLS = "palaver.tools";
const KEPT_MODEL = "palaver.model";

class Composer extends HTMLElement {
  connectedCallback() {
    this.tools = localStorage.getItem(KEPT_TOOLS) !== "off";
    /** @type {Map<string, string>} what was typed and not sent, by conversation */
    this.kept = new Map();
    this.about = get().id ?? "";
    this.#build();
    const draw = () => redraw(this, () => this.#draw());
    this.quiet = [
      watch(["id"], () => this.#opened()),
      watch(["stepping", "viewing", "info", "model"], draw),
      watch(["head", "model", "viewing"], () => this.#countSoon()),
      onLanguage(draw),
    ];
    const chosen = localStorage.getItem(KEPT_MODEL);
    if (this.models.some(({ name, ready }) => name === chosen && ready)) set({ model: chosen });
    this.#draw();
    this.#countSoon();
  }

  disconnectedCallback() {
    this.quiet?.forEach((stop) => stop());
    clearTimeout(this.timer);
  }

  /** @returns {any[]} */
  get models() {
    return get().info?.models ?? [];
  }

  /** Another conversation: what was typed here is kept, what was typed there comes back. */
  #opened() {
    this.kept.set(this.about, this.field.value);
    this.about = get().id ?? "";
    this.field.value = this.kept.get(this.about) ?? "";
    this.#fit();
    fill(this.total);
  }

  /** What stays as it is while somebody types. */
  #build() {
    this.field = /** @type {HTMLTextAreaElement} */ (
      h("textarea", {
        id: "say",
        rows: 1,
        oninput: () => this.#fit(),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
      })
    );
    this.total = h("span", { class: "next muted tiny" });
    this.foot = h("div", { class: "composer-foot" });
    const submit = (/** @type {Event} */ event) => (event.preventDefault(), this.#send());
    fill(this, h("form", { class: "composer", onsubmit: submit }, this.field, this.foot));
  }

  #draw() {
    this.hidden = !canWrite() || get().viewing !== null;
    this.field.placeholder = t("composer.placeholder");
    this.field.setAttribute("aria-label", t("composer.placeholder"));
    fill(this.foot, this.#modelButton(), this.#toolsButton(), h("span", { class: "grow" }), this.total, this.#go());
    this.#fit();
  }

  #modelButton() {
    const model = chosenModel();
    return h(
      "button",
      {
        type: "button",
        class: "plain model",
        "aria-haspopup": "menu",
        "aria-expanded": "false",
        "aria-label": t("composer.model", { name: model?.label ?? t("composer.nomodel") }),
        onclick: (/** @type {Event} */ event) => this.#chooseModel(/** @type {HTMLElement} */ (event.currentTarget)),
      },
      h("span", { class: "clip" }, model?.label ?? t("composer.nomodel")),
      icon("chevron"),
    );
  }

  /** @param {HTMLElement} anchor */
  #chooseModel(anchor) {
    const chosen = chosenModel();
    const entries = this.models.map(({ name, label, ready, why }) => ({
      label: ready ? label : `${label} — ${why ?? t("composer.notready")}`,
      checked: name === chosen?.name,
      disabled: !ready,
      run: () => {
        localStorage.setItem(KEPT_MODEL, name);
        set({ model: name });
      },
    }));
    openMenu(anchor, entries);
  }

  #toolsButton() {
    const known = get().info?.tools ?? [];
    if (!known.length) return null;
    return h(
      "button",
      {
        type: "button",
        class: "plain",
        "aria-pressed": String(this.tools),
        title: known.map((/** @type {any} */ tool) => tool.name).join(", "),
        onclick: () => {
          this.tools = !this.tools;
          localStorage.setItem(KEPT_TOOLS, this.tools ? "on" : "off");
          redraw(this, () => this.#draw());
        },
      },
      icon("tool"),
      t("composer.tools"),
    );
  }

  #go() {
    if (get().stepping) {
      return h("button", { type: "button", class: "send stop", "aria-label": t("composer.stop"), title: t("composer.stop"), onclick: () => this.#stop() }, icon("stop"));
    }
    return h("button", { type: "submit", class: "primary send", "aria-label": t("composer.send"), title: t("composer.send") }, icon("send"));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.#send();
    } else if (event.key === "Escape") {
      this.field.blur();
      event.stopPropagation();
    }
  }

  async #send() {
    const { id, head } = get();
    const text = this.field.value;
    if (!text.trim() && !head?.length) return;
    const sent = await this.say(text, { tools: this.tools });
    if (!sent || !id) return;
    this.kept.delete(id);
    if (id === this.about) this.field.value = ""; // elsewhere other words are in the box
    this.#fit();
  }

  /**
   * Say something in the open conversation and let the model answer; empty words only let it answer.
   *
   * @param {string} text
   * @param {{tools: boolean | string[], options?: Record<string, any>}} how
   * @returns {Promise<boolean>} whether it was sent
   */
  async say(text, how) {
    const { id, stepping, model } = get();
    if (!id || stepping) return false;
    set({ stepping: true });
    const body = { ...how, ...(model ? { model } : {}), ...(text.trim() ? { text } : {}) };
    const begun = await attempt(() => api.post(url`conversations/${id}/step`, body), t("composer.failed"));
    if (begun === undefined) {
      set({ stepping: false });
      return false;
    }
    /** @type {any} */ (document.querySelector("pv-thread"))?.toEnd();
    refresh();
    return true;
  }

  async #stop() {
    const { id } = get();
    await attempt(() => api.delete(url`conversations/${id}/step`));
  }

  /** As high as what is in it, up to a limit that the style sets. */
  #fit() {
    const { field } = this;
    field.style.setProperty("height", "auto");
    field.style.setProperty("height", `${field.scrollHeight + 2}px`);
  }

  #countSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#count(), 250);
  }

  /** What the next request would hold, as the server counts it. */
  async #count() {
    const { id, viewing } = get();
    if (!id || viewing !== null) return;
    const query = { model: get().model };
    const answer = await api.get(url`conversations/${id}/tokens`, { query }).catch(() => null);
    if (!answer || id !== get().id) return;
    const { total, limit, window: whole } = answer;
    const room = limit ?? whole;
    const over = Boolean(room && total > room);
    const long = room ? t("composer.next.of", { n: short(total), limit: short(room) }) : t("composer.next", { n: short(total) });
    const brief = room ? `${short(total)} / ${short(room)}` : `≈ ${short(total)}`;
    fill(this.total, h("span", { class: "long" }, long), h("span", { class: "short", title: long }, brief));
    this.total.classList.toggle("danger-text", over);
  }
}

customElements.define("pv-composer", Composer);
