/**
 * The chat box: a text field, the files that go with the text, the controls below it, and the buttons
 * to send and to stop, with the size of the next request.
 */

import "./team-box.js";
import "./attachments.js";
import { api, Problem, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { refresh } from "../core/open-conversation.js";
import { redraw } from "../core/redraw.js";
import { canWrite, get, set, watch } from "../core/state.js";
import { onLanguage, short, t } from "../locales/locale.js";
import { attempt, notify } from "../shell/toast.js";
import { withBytes } from "./attachments.js";
import { chooseTools, controls, restoreChoices, usualTools } from "./composer-controls.js";
import { setFailure } from "./failed-step.js";

const UNSENT_KEY = "palaver.unsent.";

export class Composer extends HTMLElement {
  field = h("textarea", {
    id: "say",
    rows: 1,
    oninput: () => this.#typed(),
    onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
    onpaste: (/** @type {ClipboardEvent} */ event) => this.#paste(event),
  });
  total = h("span", { class: "next muted tiny" });
  foot = h("div", { class: "composer-foot" });
  /** The conversation that the text is for. */
  about = "";
  /** The conversation whose text is sent as soon as the answer under way is there. */
  queued = "";
  team = h("pv-team-box");
  attachments = h("pv-attachments");
  note = h("p", { class: "composer-note small", role: "status", hidden: true });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  timer = undefined;
  /** @type {(() => void)[]} */
  subscriptions = [];

  connectedCallback() {
    this.about = get().id ?? "";
    const submit = (/** @type {Event} */ event) => (event.preventDefault(), this.#send());
    fill(this, h("form", { class: "composer", onsubmit: submit }, this.team, this.attachments, this.field, this.note, this.foot));
    this.addEventListener("pv-team", () => this.#draw());
    const draw = () => redraw(this, () => this.#draw());
    this.subscriptions = [
      watch(["id"], () => this.#opened()),
      watch(["stepping", "viewing", "info", "model", "tools", "settings"], draw),
      watch(["model", "info"], chooseTools),
      watch(["stepping"], () => this.#sendQueued()),
      watch(["head", "model", "viewing"], () => this.#countSoon()),
      onLanguage(draw),
    ];
    restoreChoices();
    this.field.value = this.#unsent();
    this.#draw();
    this.#countSoon();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
    clearTimeout(this.timer);
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
    const how = this.team.team ? [] : controls((files) => this.attach(files));
    fill(this.foot, how, h("span", { class: "grow" }), this.total, this.#go());
    this.#fit();
  }

  /** Attach files to the next message. @param {Iterable<File>} files */
  attach(files) {
    if (this.team.team) return notify({ kind: "error", text: t("attach.team") });
    this.attachments.add(files);
    this.field.focus();
  }

  /** Attach what is pasted, unless it is text that also comes as a picture. @param {ClipboardEvent} event */
  #paste(event) {
    const { clipboardData: pasted } = event;
    if (!pasted?.files.length || pasted.types.includes("text/plain")) return;
    event.preventDefault();
    this.attach(pasted.files);
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
    await this.attachments.ready; // what is being read goes with it
    if (!get().settings) await refresh(); // they say which tools there are
    const { id, head, stepping } = get();
    const text = this.field.value;
    const files = this.team.team ? [] : this.attachments.list;
    if (!text.trim() && !files.length && !head?.length) return;
    if (stepping) {
      this.queued = (text.trim() || files.length) && id ? id : "";
      this.#say();
      return;
    }
    const sent = await this.say(text, usualTools(), files);
    if (!sent || !id) return;
    this.attachments.sent(id, files);
    localStorage.removeItem(UNSENT_KEY + id);
    if (id !== this.about || this.field.value !== text) return; // other words are in the box now
    this.field.value = "";
    this.#fit();
    if (!this.attachments.list.length) this.queued = ""; // Enter was pressed twice, and sends once
    this.#say();
  }

  /** Try a step again. @param {import("../core/state.js").Failure} failure */
  retry({ stored }) {
    if (stored) this.say("", usualTools());
    else this.#send();
  }

  /**
   * Send a text in the open conversation and let the model answer; an empty text without files only
   * lets it answer. What `how` leaves out is as the conversation's settings have it.
   *
   * @param {string} text
   * @param {{tools?: boolean | string[], options?: Record<string, any>}} how
   * @param {readonly import("./attachments.js").Attachment[]} [files]
   * @returns {Promise<boolean>} whether it was sent
   */
  async say(text, how, files = []) {
    const { id, stepping, model } = get();
    if (!id || stepping) return false;
    set({ stepping: true });
    setFailure(id, null); // not after the request: the step may have failed by then
    const attached = files.length ? { files: files.map(withBytes) } : {};
    const body = { ...how, ...attached, ...(model ? { model } : {}), ...(text.trim() ? { text } : {}) };
    try {
      if (this.team.team) await this.team.send(id, text);
      else await api.post(url`conversations/${id}/step`, body);
    } catch (error) {
      if (get().id === id) set({ stepping: false });
      if (!(error instanceof Problem)) throw error;
      setFailure(id, { detail: error.status === 0 ? t("failed.unreachable") : error.message, stored: !text.trim() && !files.length });
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
    const brief = room ? `${short(total)} /\u00a0${short(room)}` : `≈ ${short(total)}`;
    fill(this.total, h("span", { class: "long" }, long), h("span", { class: "short", title: long }, brief));
    this.total.classList.toggle("danger-text", over);
  }
}

customElements.define("pv-composer", Composer);
