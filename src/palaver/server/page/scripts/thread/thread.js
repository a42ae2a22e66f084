/**
 * The thread: a list of any length of which only the rows near the visible range are in the
 * document. The message at the top edge (the anchor) stays in place, or the end while the reader is
 * there; when a height turns out to differ, everything else moves around it.
 */

import "./draft.js";
import { fill, h, icon } from "../core/dom.js";
import { get, set, shownVersion, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";
import { failed } from "../shell/toast.js";
import { extendSelection } from "./message-actions.js";
import { MessagePages } from "./message-pages.js";
import { Heights } from "./row-heights.js";
import { Rows } from "./rows.js";

const GUESS = 110;
/** How far beyond the edges rows are drawn, in pixels. */
const OVER = 700;
const NEAR_END = 48;
/** How many rows are fetched before anything is drawn. */
const FIRST = 20;

export class Thread extends HTMLElement {
  top = h("div", { class: "space" });
  bottom = h("div", { class: "space" });
  list = h("div", { class: "rows", role: "feed" });
  draft = h("pv-draft");
  scroller = h(
    "div",
    { class: "scroller", tabindex: 0, role: "region", onscroll: () => this.#scrolled() },
    this.top,
    this.list,
    this.bottom,
    this.draft,
  );
  down = h("button", { type: "button", class: "to-end", hidden: true, onclick: () => this.toEnd() }, icon("down"));
  rows = new Rows(this.list, () => this.#resized());
  heights = new Heights(0, GUESS);
  /** @type {MessagePages | undefined} the messages on the screen */
  pages = undefined;
  /** @type {MessagePages | undefined} those that will be shown when they have arrived */
  coming = undefined;
  /** Settled when everything that is known to be stored has been drawn. @type {Promise<void>} */
  drawn = Promise.resolve();
  /** The message at the top edge, and how far it is scrolled. @type {{index: number, offset: number}} */
  anchor = { index: 0, offset: 0 };
  /** Whether the reader is at the end, and follows it. */
  atEnd = true;
  /** The state's `edits` when `pages` was loaded; -1 while an older version is shown. */
  edits = -1;
  /** Whether `pages` is of the newest version. */
  now = true;
  /** @type {number | undefined} where to go when the messages have arrived */
  pending = undefined;
  frame = 0;
  /** The scroll position that this script set last. */
  placed = -1;
  /** @type {(() => void)[]} */
  subscriptions = [];

  connectedCallback() {
    fill(this, this.scroller, this.down);
    this.rows.sizes.observe(this.scroller);
    this.list.addEventListener("click", (event) => this.#clicked(event));
    const jump = (/** @type {DocumentEventMap["pv-jump"]} */ event) => this.jump(event.detail.index);
    document.addEventListener("pv-jump", jump);
    this.addEventListener("pv-drawn", () => this.atEnd && this.#toEnd());
    this.subscriptions = [
      watch(["id", "head", "viewing"], () => this.#changed()),
      watch(["focus", "selection"], () => this.rows.mark()),
      watch(["stepping", "viewing"], () => this.rows.redraw()),
      onLanguage(() => this.#name()),
      () => document.removeEventListener("pv-jump", jump),
    ];
    this.#name();
    this.#changed();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
    this.rows.sizes.disconnect();
    this.pages?.stop();
  }

  /** Set the labels in the current language. */
  #name() {
    for (const one of [this.list, this.scroller]) one.setAttribute("aria-label", t("thread.label"));
    this.down.setAttribute("aria-label", t("thread.end"));
    this.down.title = t("thread.end");
    this.rows.redraw();
  }

  /** How many messages there are. */
  get length() {
    return this.pages?.length ?? 0;
  }

  /** The index of the message at the top edge. */
  get first() {
    return this.anchor.index;
  }

  /**
   * The item at an index; undefined until it has arrived.
   *
   * @param {number} index
   */
  itemAt(index) {
    return this.pages?.at(index);
  }

  /**
   * Scroll a message to the top edge or, with `nearest`, just into view.
   *
   * @param {number} index
   * @param {{nearest?: boolean}} [how]
   */
  reveal(index, { nearest = false } = {}) {
    const row = this.rows.at(index);
    if (nearest && row) {
      row.scrollIntoView({ block: "nearest" });
      return;
    }
    this.atEnd = false;
    this.anchor = { index: Math.max(0, Math.min(index, this.length - 1)), offset: 0 };
    this.#render();
  }

  /** Go to the end and stay there while more arrives. */
  toEnd() {
    this.atEnd = true;
    this.#render();
  }

  /** Scroll to a message, now or when the messages have arrived. @param {number} index */
  jump(index) {
    this.pending = undefined;
    if (!this.pages) {
      this.pending = index;
      return;
    }
    this.reveal(index);
    set({ focus: index });
  }

  /** Load and draw what the state asks for: another conversation, another version, or more messages. */
  #changed() {
    const { id, head } = get();
    const version = shownVersion();
    const before = this.pages?.id === id ? this.pages : undefined;
    if (this.coming && this.coming.id === id && this.coming.version === version) return;
    this.coming = undefined;
    this.drawn = Promise.resolve();
    if (before && before.version === version) return;
    if (!before && this.pages) this.#swap(undefined, false);
    if (id && head && version !== null) this.drawn = this.#load(id, version, head.length, before);
  }

  /**
   * Fetch the messages of a version and draw them, unless another is wanted meanwhile.
   *
   * @param {string} id
   * @param {number} version
   * @param {number} length
   * @param {MessagePages | undefined} before
   * @returns {Promise<void>}
   */
  async #load(id, version, length, before) {
    const { viewing, edits } = get();
    const callbacks = { arrived: () => this.#render(), failed: refused };
    // where nothing but appends came since, what is here stays
    const grown = before !== undefined && viewing === null && this.edits === edits;
    const pages = grown ? before.grown(version, length) : new MessagePages(id, version, length, callbacks);
    this.coming = pages;
    try {
      if (viewing !== null) await pages.measure();
      await pages.load(...this.#window(pages.length, before !== undefined));
    } catch (error) {
      if (this.coming === pages) this.coming = undefined;
      refused(error);
      return undefined;
    }
    if (this.coming !== pages) return this.drawn; // it changed again meanwhile
    this.coming = undefined;
    this.edits = viewing === null ? edits : -1;
    this.#swap(pages, before !== undefined, grown);
    return undefined;
  }

  /**
   * The rows that will be visible in a list of this length.
   *
   * @param {number} length
   * @param {boolean} same
   * @returns {[number, number]}
   */
  #window(length, same) {
    const rows = Math.min(length, FIRST);
    const start = same && !this.atEnd ? Math.min(this.anchor.index, length - rows) : length - rows;
    return [start, start + rows];
  }

  /**
   * Show other pages. In the same conversation the scroll position stays.
   *
   * @param {MessagePages | undefined} pages
   * @param {boolean} same
   * @param {boolean} [grown]
   */
  #swap(pages, same, grown = false) {
    // only from one "now" to the next are more messages newly said
    const now = get().viewing === null;
    const before = same && now && this.now ? this.length : Infinity;
    this.now = now;
    this.pages?.stop();
    this.pages = pages;
    this.heights = grown ? this.heights.grown(this.length) : new Heights(this.length, GUESS);
    if (!same) this.atEnd = true;
    if (!pages) this.draft.end();
    const { index, offset } = this.anchor;
    this.anchor = same ? { index: Math.min(index, Math.max(0, this.length - 1)), offset } : { index: 0, offset: 0 };
    this.#render();
    if (!pages) return;
    this.draft.release(pages.countFrom(before, "assistant"));
    if (this.pending !== undefined) this.jump(this.pending);
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    if (Math.abs(scrollTop - this.placed) < 1) return; // our own doing
    this.placed = -1;
    this.atEnd = scrollHeight - scrollTop - clientHeight < NEAR_END;
    const index = this.heights.rowAt(scrollTop);
    this.anchor = { index, offset: scrollTop - this.heights.before(index) };
    this.frame ||= requestAnimationFrame(() => this.#render());
  }

  #resized() {
    if (this.rows.measure(this.heights) > 1 || this.atEnd) this.#render();
  }

  /** Draw the rows near the anchor, measure them, and put the anchor back where it was. */
  #render() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { heights, length } = this;
    const view = this.scroller.clientHeight;
    // twice: the first rows' true heights may let more into sight
    for (let pass = 0; pass < 2; pass++) {
      const top = this.atEnd ? Math.max(0, heights.total - view) : heights.before(this.anchor.index) + this.anchor.offset;
      const start = length ? heights.rowAt(Math.max(0, top - OVER)) : 0;
      const stop = length ? heights.rowAt(top + view + OVER) + 1 : 0;
      this.rows.render(start, stop, this.pages);
      this.pages?.want(start, stop);
      this.rows.measure(heights);
      this.top.style.setProperty("height", `${heights.before(start)}px`);
      this.bottom.style.setProperty("height", `${heights.total - heights.before(stop)}px`);
    }
    if (this.atEnd) this.#toEnd();
    else this.#place(heights.before(this.anchor.index) + this.anchor.offset);
    this.down.hidden = this.atEnd || length === 0;
  }

  #toEnd() {
    this.#place(this.scroller.scrollHeight);
  }

  /** Scroll, and remember the position, so that the scroll event is not taken for the reader's. @param {number} top */
  #place(top) {
    if (Math.abs(this.scroller.scrollTop - top) < 1) return;
    this.scroller.scrollTop = top;
    this.placed = this.scroller.scrollTop;
  }

  /** @param {MouseEvent} event */
  #clicked(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const row = target.closest("pv-message");
    if (!row?.item || target.closest("button, a, summary")) return;
    if (event.shiftKey) {
      getSelection()?.removeAllRanges();
      extendSelection(row.index);
    } else if (!getSelection()?.toString()) {
      set({ focus: row.index });
    }
  }
}

/** @param {unknown} error */
function refused(error) {
  failed(error, t("thread.failed"));
}

customElements.define("pv-thread", Thread);
