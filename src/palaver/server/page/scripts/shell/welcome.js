/**
 * What is shown in place of the thread when no conversation is open or the open one is empty. With
 * nothing open it offers what there is to begin with: transcripts of other programs on the server's
 * machine, of which only names, sizes and dates are known; the examples, where the store is empty; a
 * new conversation.
 *
 * @typedef {import("./found-transcripts.js").Found} Found
 */

import { api } from "../core/api.js";
import { asset, fill, h, icon } from "../core/dom.js";
import { redraw } from "../core/redraw.js";
import { canWrite, get, set, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";
import { begin } from "./conversation-actions.js";
import { describe, find, fresh, openFound } from "./found-transcripts.js";
import { openStart } from "./onboarding.js";
import { attempt } from "./toast.js";

export class Welcome extends HTMLElement {
  /** @type {(() => void)[]} */
  subscriptions = [];
  /** Whether the store has no conversation; undefined until that is known. @type {boolean | undefined} */
  empty = undefined;
  /** @type {Found | null} */
  found = null;
  turn = 0;

  connectedCallback() {
    const draw = () => redraw(this, () => this.#draw());
    const look = () => this.#look();
    document.addEventListener("pv-conversations", look);
    this.subscriptions = [
      watch(["id", "head", "viewing", "stepping"], draw),
      watch(["id"], look),
      onLanguage(draw),
      () => document.removeEventListener("pv-conversations", look),
    ];
    this.#draw();
    look();
  }

  /** Find out what there is to begin with. */
  async #look() {
    if (get().id !== null || !canWrite()) return;
    const turn = ++this.turn;
    const first = api.get("conversations", { query: { limit: 1 } }).catch(() => null);
    const [page, found] = await Promise.all([first, find()]);
    if (turn !== this.turn) return;
    this.empty = page?.items.length === 0;
    this.found = found;
    redraw(this, () => this.#draw());
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
  }

  #draw() {
    const { id, head, viewing, stepping } = get();
    const nothing = head !== null && head.length === 0 && viewing === null && !stepping;
    this.hidden = id !== null && !nothing;
    fill(this, this.hidden ? null : id === null ? nowhere(this.empty === true, this.found) : silence());
  }
}

/**
 * @param {boolean} empty
 * @param {Found | null} found
 */
function nowhere(empty, found) {
  const news = found ? fresh(found.transcripts) : [];
  const drawer = h("button", { type: "button", class: "drawer-button", onclick: () => document.querySelector("pv-app")?.setAttribute("data-drawer", "") }, icon("menu"), t("sidebar.label"));
  return h(
    "div",
    { class: "empty beginnings" },
    h("img", { src: asset("icons/palaver.svg"), alt: "", width: 44, height: 44 }),
    h("h1", null, t(empty ? "welcome.first" : "welcome.title")),
    h("p", null, t("welcome.text")),
    h(
      "div",
      { class: "offers" },
      found && news.length ? offer("upload", importTitle(found), `${describe(news, found.programs)}. ${t("home.unread")}`, openFound) : null,
      empty ? offer("history", t("welcome.example"), t("welcome.example.text"), openExamples) : null,
      canWrite() ? offer("plus", t(empty ? "welcome.start" : "sidebar.new"), t("welcome.start.text"), begin) : null,
    ),
    drawer,
    h("p", { class: "small" }, h("kbd", null, "?"), " ", t("welcome.keys")),
  );
}

/** What to import: the sessions of Claude Code, where there are some, or of whatever there is. @param {Found} found */
function importTitle({ programs, transcripts }) {
  const there = [...new Set(fresh(transcripts).map(({ program }) => program))];
  const first = there.includes("claude-code") ? "claude-code" : there[0];
  return t(there.length > 1 ? "home.import.more" : "home.import", { program: programs[first] });
}

/**
 * @param {string} picture
 * @param {string} title
 * @param {string} text
 * @param {() => unknown} run
 */
function offer(picture, title, text, run) {
  return h("button", { type: "button", class: "offer", onclick: run }, icon(picture), h("strong", null, title), h("span", { class: "muted small" }, text));
}

/** Write the examples into the store, and open the first with the guide. */
function openExamples() {
  return attempt(async () => {
    await api.post("examples");
    set({ info: await api.get("info") });
    document.dispatchEvent(new CustomEvent("pv-conversations"));
    openStart();
  });
}

function silence() {
  return h("div", { class: "empty" }, h("h2", null, t("silence.title")), h("p", null, t(canWrite() ? "silence.text" : "silence.readonly")));
}

customElements.define("pv-welcome", Welcome);
