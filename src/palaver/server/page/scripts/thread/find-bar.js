/**
 * Find in the conversation. The browser's own search sees only the rows that are drawn; this one asks
 * the server, which looks through every message of the version that is shown. Found text is marked
 * with the CSS highlight registry, so that the rows stay as they are.
 */

import { api, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { get, set, shownVersion, watch } from "../core/state.js";
import { count, onLanguage, t } from "../locales/locale.js";
import { failed } from "../shell/toast.js";
import { rangesOf } from "./text-ranges.js";

const PAUSE = 150;
/** A longer selection is not taken as the text to find. */
const LONGEST = 100;

export class FindBar extends HTMLElement {
  field = h("input", { type: "search", autocomplete: "off", spellcheck: "false", maxlength: 1000, oninput: () => this.#typed() });
  counter = h("span", { class: "find-count muted small", role: "status" });
  text = "";
  /** The indices of the messages that were found, in order. @type {number[]} */
  found = [];
  /** Which of them is shown; -1 if none is. */
  at = -1;
  /** The version that was searched. @type {number | null} */
  version = null;
  /** The message at the top edge when the search began. */
  from = 0;
  /** Whether the text of the message that is shown still has to be scrolled to. */
  arriving = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  timer = undefined;
  /** @type {AbortController | undefined} */
  asking = undefined;
  frame = 0;
  rows = new MutationObserver(() => this.#paintSoon());
  /** @type {(() => void)[]} */
  subscriptions = [];

  connectedCallback() {
    this.hidden = true;
    this.setAttribute("role", "search");
    this.addEventListener("keydown", (event) => this.#key(event));
    this.subscriptions = [
      watch(["id"], () => this.close(false)),
      watch(["head", "viewing"], () => this.#moved()),
      onLanguage(() => this.#draw()),
    ];
    this.#draw();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
    this.#stop();
  }

  /** Whether the cursor is in the field. */
  get focused() {
    return document.activeElement === this.field;
  }

  /** Open the bar, with the selected text if it is a short one, and put the cursor into it. */
  open() {
    const chosen = getSelection()?.toString().trim() ?? "";
    if (this.hidden) this.from = thread()?.first ?? 0;
    this.hidden = false;
    const list = thread()?.list;
    if (list) this.rows.observe(list, { childList: true, subtree: true });
    if (chosen && chosen.length <= LONGEST && !chosen.includes("\n")) this.field.value = chosen;
    this.field.focus();
    this.field.select();
    this.#typed();
  }

  /** @param {boolean} [back]  give the focus to the message that is shown, or to the thread */
  close(back = true) {
    if (this.hidden) return;
    this.hidden = true;
    const index = this.found[this.at];
    this.#stop();
    this.found = [];
    this.at = -1;
    this.#paint();
    if (!back) return;
    if (index === undefined) thread()?.scroller.focus();
    else set({ focus: index });
  }

  /** Go to the next message that was found, or with -1 to the one before. @param {1 | -1} by */
  step(by) {
    const { length } = this.found;
    if (!length) return;
    this.at = (this.at + by + length) % length;
    this.#reveal();
  }

  #draw() {
    this.setAttribute("aria-label", t("find"));
    this.field.setAttribute("aria-label", t("find"));
    this.field.placeholder = t("find");
    const button = (/** @type {string} */ name, /** @type {string} */ label, /** @type {() => void} */ onclick) =>
      h("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick }, icon(name));
    fill(
      this,
      icon("search"),
      this.field,
      this.counter,
      button("up", t("find.previous"), () => this.step(-1)),
      button("down", t("find.next"), () => this.step(1)),
      button("x", t("find.close"), () => this.close()),
    );
    this.#count();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === "Escape") this.close();
    else if (event.key === "Enter" && event.target === this.field) this.#enter(event.shiftKey ? -1 : 1);
    else if (event.key === "ArrowDown") this.step(1);
    else if (event.key === "ArrowUp") this.step(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Enter goes on; before the answer to what was typed is there, it waits for it. @param {1 | -1} by */
  #enter(by) {
    if (this.field.value.trim() === this.text && this.version !== null) this.step(by);
    else this.#ask();
  }

  #typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#ask(), PAUSE);
  }

  /** What is shown is another version: search that. */
  #moved() {
    if (!this.hidden && this.version !== null && this.version !== shownVersion()) this.#typed();
  }

  async #ask() {
    clearTimeout(this.timer);
    this.asking?.abort();
    const text = this.field.value.trim();
    const { id, viewing } = get();
    const again = text === this.text && this.version !== null;
    const before = this.found[this.at];
    this.text = text;
    this.version = null;
    if (!text || !id) {
      this.#show([], -1);
      return;
    }
    this.asking = new AbortController();
    try {
      const query = { q: text, version: viewing };
      /** @type {import("../core/protocol.js").GetConversationsFind} */
      const answer = await api.get(url`conversations/${id}/find`, { query, signal: this.asking.signal });
      this.version = answer.version;
      // typing on stays where the search began; another version, where the reader is
      const near = again && before !== undefined ? before : this.from;
      const at = answer.indices.findIndex((index) => index >= near);
      this.#show(answer.indices, answer.indices.length && at < 0 ? 0 : at, again);
    } catch (error) {
      failed(error, t("sidebar.failed"));
    }
  }

  /**
   * @param {number[]} found
   * @param {number} at
   * @param {boolean} [still]  the reader stays where he is
   */
  #show(found, at, still = false) {
    this.found = found;
    this.at = at;
    if (at >= 0 && !still) this.#reveal();
    else {
      this.#count();
      this.#paint();
    }
  }

  #reveal() {
    this.arriving = true;
    this.#count();
    thread()?.reveal(this.found[this.at]);
    this.#paintSoon();
  }

  #count() {
    const { length } = this.found;
    if (!this.text) this.counter.textContent = "";
    else if (length) this.counter.textContent = t("find.count", { n: length, at: count(this.at + 1), all: count(length) });
    else this.counter.textContent = t("find.none");
    this.toggleAttribute("data-none", !!this.text && !length);
  }

  #stop() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.rows.disconnect();
    this.text = "";
    this.version = null;
  }

  #paintSoon() {
    this.frame ||= requestAnimationFrame(() => this.#paint());
  }

  /** Mark the text in the rows that are drawn, and outline the message that is shown. */
  #paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    /** @type {Range[]} */
    const all = [];
    /** @type {Range[]} */
    let here = [];
    const index = this.found[this.at];
    const wanted = new Set(this.found);
    thread()?.rows.all.forEach((row, place) => {
      row.classList.toggle("found", place === index);
      if (!wanted.has(place) || !row.item) return;
      if (place === index) here = this.#arrive(row);
      else all.push(...rangesOf(row, this.text));
    });
    globalThis.CSS?.highlights?.set("found", new Highlight(...all));
    globalThis.CSS?.highlights?.set("found-here", new Highlight(...here));
  }

  /**
   * The ranges in the message that is shown. When it is first reached, what hides the text is opened
   * and the text scrolled to.
   *
   * @param {import("./message.js").MessageRow} row
   * @returns {Range[]}
   */
  #arrive(row) {
    if (!this.arriving) return rangesOf(row, this.text);
    this.arriving = false;
    if (!rangesOf(row, this.text).length) {
      row.querySelectorAll(".more-text").forEach((more) => /** @type {HTMLElement} */ (more).click());
    }
    const found = rangesOf(row, this.text);
    const fold = found.length ? found[0].startContainer.parentElement?.closest("details:not([open])") : null;
    for (let each = fold; each; each = each.parentElement?.closest("details:not([open])")) {
      /** @type {HTMLDetailsElement} */ (each).open = true;
      /** @type {HTMLDetailsElement} */ (each).dataset.touched = "yes";
    }
    const scroller = thread()?.scroller;
    if (found.length && scroller) {
      const [box, at] = [scroller.getBoundingClientRect(), found[0].getBoundingClientRect()];
      if (at.bottom > box.bottom || at.top < box.top) scroller.scrollTop += at.top - box.top - box.height / 3;
    }
    return found;
  }
}

const thread = () => document.querySelector("pv-thread");

customElements.define("pv-find", FindBar);
