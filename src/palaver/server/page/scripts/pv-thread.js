/**
 * The thread: a list of any length of which only what is near the eye is in the page. What keeps
 * its place is the message at the top edge (the anchor), or the end while the reader is there;
 * heights that turn out different move everything else around it.
 */

import { fill, h, icon } from "./dom.js";
import { Heights } from "./heights.js";
import { choosing } from "./message-actions.js";
import { Pages } from "./pages.js";
import { failed } from "./pv-toast.js";
import { Rows } from "./rows.js";
import { get, set, shownVersion, watch } from "./state.js";
import { onLanguage, t } from "./words.js";

const GUESS = 110;
/** How far beyond the edges rows are drawn, in pixels. */
const OVER = 700;
const NEAR_END = 48;
/** How many rows are fetched before anything is drawn. */
const FIRST = 20;

class Thread extends HTMLElement {
  connectedCallback() {
    this.#build();
    this.rows = new Rows(this.list, () => this.#resized());
    this.rows.sizes.observe(this.scroller);
    this.anchor = { index: 0, offset: 0 };
    this.atEnd = true;
    this.heights = new Heights(0, GUESS);
    this.edits = -1;
    this.now = true;
    /** Settled when everything that is known to be stored has been drawn. */
    this.drawn = Promise.resolve();
    /** @type {Pages | undefined} those that will be shown when they are here */
    this.coming = undefined;
    this.frame = 0;
    /** Where we scrolled to ourselves. */
    this.placed = -1;
    const jump = (/** @type {any} */ event) => this.jump(event.detail.index);
    document.addEventListener("pv:jump", jump);
    this.addEventListener("pv-drawn", () => this.atEnd && this.#toEnd());
    this.quiet = [
      watch(["id", "head", "viewing"], () => this.#changed()),
      watch(["focus", "selection"], () => this.rows.mark()),
      watch(["stepping", "viewing"], () => this.rows.redraw()),
      onLanguage(() => this.#name()),
      () => document.removeEventListener("pv:jump", jump),
    ];
    this.#name();
    this.#changed();
  }

  disconnectedCallback() {
    this.quiet?.forEach((stop) => stop());
    this.rows.sizes.disconnect();
    this.pages?.stop();
  }

  #build() {
    this.top = h("div", { class: "space" });
    this.bottom = h("div", { class: "space" });
    this.list = h("div", { class: "rows", role: "feed" });
    this.draft = /** @type {any} */ (document.createElement("pv-draft"));
    this.scroller = h(
      "div",
      { class: "scroller", tabindex: 0, role: "region", onscroll: () => this.#scrolled() },
      this.top,
      this.list,
      this.bottom,
      this.draft,
    );
    this.down = h("button", { type: "button", class: "to-end", hidden: true, onclick: () => this.toEnd() }, icon("down"));
    this.list.addEventListener("click", (event) => this.#clicked(event));
    fill(this, this.scroller, this.down);
  }

  /** Say what everything is, in the language that is spoken. */
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
   * The item at an index, when it is here.
   *
   * @param {number} index
   */
  itemAt(index) {
    return this.pages?.at(index);
  }

  /**
   * Bring a message to the top edge, or, with `nearest`, just into sight.
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

  /** Go to a message, as soon as there is one. @param {number} index */
  jump(index) {
    this.pending = undefined;
    if (!this.pages) {
      this.pending = index;
      return;
    }
    this.reveal(index);
    set({ focus: index });
  }

  /** Another conversation, another version, or more messages. */
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
   * @param {Pages | undefined} before
   * @returns {Promise<void>}
   */
  async #load(id, version, length, before) {
    const { viewing, edits } = get();
    const tell = { arrived: () => this.#render(), failed: refused };
    // where nothing but appends came since, what is here stays
    const grown = before !== undefined && viewing === null && this.edits === edits;
    const pages = grown ? before.grown(version, length) : new Pages(id, version, length, tell);
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
   * The rows that will be in sight in a list of this length.
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
   * Show other pages. Of the same conversation, the place is kept.
   *
   * @param {Pages | undefined} pages
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
      this.rows.keep(start, stop, this.pages);
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

  /** Scroll, and remember that it was us. @param {number} top */
  #place(top) {
    if (Math.abs(this.scroller.scrollTop - top) < 1) return;
    this.scroller.scrollTop = top;
    this.placed = this.scroller.scrollTop;
  }

  /** @param {MouseEvent} event */
  #clicked(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const row = /** @type {any} */ (target.closest("pv-message"));
    if (!row?.item || target.closest("button, a, summary")) return;
    if (event.shiftKey) {
      getSelection()?.removeAllRanges();
      choosing(row.index);
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
