/**
 * The rows of the list of conversations. Only those near the visible range are in the document, so
 * that a list of ten thousand scrolls as smoothly as one of ten.
 *
 * @typedef {import("../core/api.js").Head} Head
 */

import { fill, h } from "../core/dom.js";
import { Heights } from "../thread/row-heights.js";

/** The height of a row without tags, in pixels. */
const GUESS = 54;
/** How many rows are kept above and below the visible ones. */
const AROUND = 50;

export class ConversationRows {
  element = h("ul");
  /** @type {Head[]} */
  heads = [];
  heights = new Heights(0, GUESS);
  /** The rows in the document, by index. @type {Map<number, HTMLElement>} */
  drawn = new Map();
  start = 0;
  stop = 0;
  /** Whether there are more conversations than these. */
  more = false;

  /**
   * @param {HTMLElement} list  what scrolls
   * @param {(head: Head) => HTMLElement} make
   */
  constructor(list, make) {
    this.list = list;
    this.make = make;
    list.addEventListener("scroll", () => this.#follow(), { passive: true });
  }

  /**
   * Show these conversations, all rows drawn anew.
   *
   * @param {Head[]} heads
   * @param {boolean} more  whether others come after them
   */
  show(heads, more) {
    const { length } = heads;
    const { scrollTop } = this.list; // while the rows are there: the list ends earlier without them
    this.heights = length < this.heights.length ? new Heights(length, GUESS) : this.heights.grown(length);
    this.heads = heads;
    this.more = more;
    this.drawn.clear();
    fill(this.element);
    this.#render(scrollTop);
  }

  /** Measure the rows, and leave room for those that are not in the document. */
  measure() {
    const { element, heights, start, stop } = this;
    for (const [index, row] of this.drawn) {
      const { height } = row.getBoundingClientRect();
      if (height) heights.learn(index, height);
    }
    element.style.setProperty("padding-top", `${heights.before(start)}px`);
    element.style.setProperty("padding-bottom", `${heights.total - heights.before(stop)}px`);
  }

  /** The visible range, as indexes. @param {number} top @returns {[number, number]} */
  #visible(top) {
    const { element, heights, list } = this;
    if (!heights.length) return [0, 0];
    // what stands above the rows, such as those that are pinned
    const above = element.isConnected ? element.getBoundingClientRect().top - list.getBoundingClientRect().top + list.scrollTop : 0;
    return [heights.rowAt(top - above), heights.rowAt(top - above + list.clientHeight) + 1];
  }

  /** Draw other rows before the reader comes to the end of those that are there. */
  #follow() {
    const { scrollTop } = this.list;
    const [first, last] = this.#visible(scrollTop);
    const near = AROUND / 2;
    if ((this.start && first - this.start < near) || (this.stop < this.heads.length && this.stop - last < near)) this.#render(scrollTop);
  }

  /** @param {number} top  how far the list is scrolled */
  #render(top) {
    const [first, last] = this.#visible(top);
    this.start = Math.max(0, first - AROUND);
    this.stop = Math.min(this.heads.length, last + AROUND);
    for (const [index, row] of this.drawn) {
      if (index < this.start || index >= this.stop) this.#drop(index, row);
    }
    let next = this.element.firstElementChild;
    for (let index = this.start; index < this.stop; index++) {
      const row = this.drawn.get(index) ?? this.#draw(index);
      if (row === next) next = next.nextElementSibling;
      else this.element.insertBefore(row, next);
    }
    this.measure();
  }

  /** @param {number} index */
  #draw(index) {
    const row = this.make(this.heads[index]);
    row.setAttribute("aria-posinset", String(index + 1));
    row.setAttribute("aria-setsize", String(this.more ? -1 : this.heads.length));
    this.drawn.set(index, row);
    return row;
  }

  /**
   * @param {number} index
   * @param {HTMLElement} row
   */
  #drop(index, row) {
    // the focus must not fall out of the list with it
    if (row.contains(document.activeElement)) this.list.focus({ preventScroll: true });
    row.remove();
    this.drawn.delete(index);
  }
}
