/**
 * The chat box: a text field, the choice of the model, the switch for tools, and the buttons to
 * send and to stop. Below it is the size of the next request.
 */

import "./team-box.js";
import { api, Problem, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { refresh } from "../core/open-conversation.js";
import { redraw } from "../core/redraw.js";
import { canWrite, chosenModel, get, isSmall, set, watch } from "../core/state.js";
import { onLanguage, short, t } from "../locales/locale.js";
import { openMenu } from "../shell/menu.js";
import { attempt } from "../shell/toast.js";
import { setFailure } from "./failed-step.js";

const TOOLS_KEY = "palaver.tools";
const MODEL_KEY = "palaver.model";
const UNSENT_KEY = "palaver.unsent.";

export class Composer extends HTMLElement {
  field = h("textarea", {
    id: "say",
    rows: 1,
    oninput: () => this.#typed(),
    onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
  });
  total = h("span", { class: "next muted tiny" });
  foot = h("div", { class: "composer-foot" });
  /** The conversation that the text is for. */
  about = "";
  /** The conversation whose text is sent as soon as the answer under way is there. */
  queued = "";
  team = h("pv-team-box");
  note = h("p", { class: "composer-note small", role: "status", hidden: true });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  timer = undefined;
  /** @type {(() => void)[]} */
  subscriptions = [];

  connectedCallback() {
    this.about = get().id ?? "";
    const submit = (/** @type {Event} */ event) => (event.preventDefault(), this.#send());
    fill(this, h("form", { class: "composer", onsubmit: submit }, this.team, this.field, this.note, this.foot));
    this.addEventListener("pv-team", () => this.#draw());
    const draw = () => redraw(this, () => this.#draw());
    this.subscriptions = [
      watch(["id"], () => this.#opened()),
      watch(["stepping", "viewing", "info", "model", "tools"], draw),
      watch(["model", "info"], () => set({ tools: wantsTools() })),
      watch(["stepping"], () => this.#sendQueued()),
      watch(["head", "model", "viewing"], () => this.#countSoon()),
      onLanguage(draw),
    ];
    const chosen = localStorage.getItem(MODEL_KEY);
    if (this.models.some(({ name, ready }) => name === chosen && ready)) set({ model: chosen });
    set({ tools: wantsTools() });
    this.field.value = this.#unsent();
    this.#draw();
    this.#countSoon();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
    clearTimeout(this.timer);
  }

  get models() {
    return get().info?.models ?? [];
  }

  /** What was typed here and not sent; the browser stores it. */
  #unsent() {
    return localStorage.getItem(UNSENT_KEY + this.about) ?? "";
  }

  #typed() {
    const { value } = this.field;
    if (value) localStorage.setItem(UNSENT_KEY + this.about, value);
    else localStorage.removeItem(UNSENT_KEY + this.about);
    if (!value) this.queued = "";
    this.#fit();
    this.#say();
  }

  /** Say that the text waits for the answer under way. */
  #say() {
    this.note.hidden = !this.queued;
    const cancel = () => {
      this.queued = "";
      this.#say();
      this.field.focus();
    };
    fill(this.note, icon("clock"), h("span", { class: "grow" }, t("composer.queued")), h("button", { type: "button", class: "plain", onclick: cancel }, t("composer.unqueue")));
  }

  #sendQueued() {
    const { id, stepping, failures } = get();
    if (stepping || !this.queued) return;
    const wanted = this.queued === id && this.about === id && !failures[this.queued];
    this.queued = "";
    this.#say();
    if (wanted) this.#send();
  }

  /** Another conversation was opened: show what was typed in it. */
  #opened() {
    this.about = get().id ?? "";
    this.queued = "";
    this.field.value = this.#unsent();
    this.#fit();
    this.#say();
    fill(this.total);
  }

  #draw() {
    this.hidden = !canWrite() || get().viewing !== null;
    this.field.placeholder = t("composer.placeholder");
    this.field.setAttribute("aria-label", t("composer.placeholder"));
    // the members of a team have models and tools of their own
    const how = this.team.team ? [] : [this.#modelButton(), this.#toolsButton()];
    fill(this.foot, how, h("span", { class: "grow" }), this.total, this.#go());
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
      model && !model.ready ? h("span", { class: "chip warn" }, model.why ?? t("composer.notready")) : null,
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
        localStorage.setItem(MODEL_KEY, name);
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
        "aria-pressed": String(get().tools),
        title: known.map((tool) => tool.name).join(", "),
        onclick: () => {
          const tools = !get().tools;
          localStorage.setItem(TOOLS_KEY, tools ? "on" : "off");
          set({ tools });
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
    const { id, head, stepping, tools } = get();
    const text = this.field.value;
    if (!text.trim() && !head?.length) return;
    if (stepping) {
      this.queued = text.trim() && id ? id : "";
      this.#say();
      return;
    }
    const sent = await this.say(text, { tools });
    if (!sent || !id) return;
    localStorage.removeItem(UNSENT_KEY + id);
    if (id !== this.about || this.field.value !== text) return; // other words are in the box now
    this.field.value = "";
    this.#fit();
  }

  /** Try a step again. @param {import("../core/state.js").Failure} failure */
  retry({ stored }) {
    if (stored) this.say("", { tools: get().tools });
    else this.#send();
  }

  /**
   * Send a text in the open conversation and let the model answer; an empty text only lets it answer.
   *
   * @param {string} text
   * @param {{tools: boolean | string[], options?: Record<string, any>}} how
   * @returns {Promise<boolean>} whether it was sent
   */
  async say(text, how) {
    const { id, stepping, model } = get();
    if (!id || stepping) return false;
    set({ stepping: true });
    setFailure(id, null); // not after the request: the step may have failed by then
    const body = { ...how, ...(model ? { model } : {}), ...(text.trim() ? { text } : {}) };
    try {
      if (this.team.team) await this.team.send(id, text);
      else await api.post(url`conversations/${id}/step`, body);
    } catch (error) {
      if (get().id === id) set({ stepping: false });
      if (!(error instanceof Problem)) throw error;
      setFailure(id, { detail: error.status === 0 ? t("failed.unreachable") : error.message, stored: !text.trim() });
      if (text.trim() && id === this.about && !this.field.value) {
        this.field.value = text;
        this.#typed();
      }
      return false;
    }
    document.querySelector("pv-thread")?.toEnd();
    refresh();
    return true;
  }

  async #stop() {
    const { id } = get();
    await attempt(() => api.delete(url`conversations/${id}/step`));
  }

  /** Make the field as high as its text, up to the limit in the style sheet. */
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
    const query = { model: get().model, spent: false };
    const answer = await api.get(url`conversations/${id}/tokens`, { query }).catch(() => null);
    if (!answer || id !== get().id) return;
    const { total, limit, window: room } = answer;
    const over = Boolean(limit && total > limit);
    const long = room ? t("composer.next.of", { n: short(total), limit: short(room) }) : t("composer.next", { n: short(total) });
    const brief = room ? `${short(total)} / ${short(room)}` : `≈ ${short(total)}`;
    fill(this.total, h("span", { class: "long" }, long), h("span", { class: "short", title: long }, brief));
    this.total.classList.toggle("danger-text", over);
  }
}

/** Whether tools are on: as the reader said, else unless the model is the small one, which calls them at random. */
function wantsTools() {
  const said = localStorage.getItem(TOOLS_KEY);
  return said ? said !== "off" : !isSmall(chosenModel());
}

customElements.define("pv-composer", Composer);
