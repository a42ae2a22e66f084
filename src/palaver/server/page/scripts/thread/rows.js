/**
 * The rows of the thread that are in the document, by index. A row is created when it comes near
 * the visible range, measured while it is there, and removed when it leaves.
 */

import { get } from "../core/state.js";

export class Rows {
  /**
   * @param {HTMLElement} list
   * @param {() => void} resized  called when rows, or the window, have another size
   */
  constructor(list, resized) {
    this.list = list;
    /** @type {Map<number, import("./message.js").MessageRow>} */
    this.all = new Map();
    // rows grow when something in them is opened or a picture comes
    this.sizes = new ResizeObserver(resized);
  }

  /** @param {number} index */
  at(index) {
    return this.all.get(index);
  }

  /**
   * Put exactly these rows into the list, in order.
   *
   * @param {number} start
   * @param {number} stop
   * @param {import("./message-pages.js").MessagePages | undefined} pages
   */
  render(start, stop, pages) {
    for (const [index, row] of this.all) {
      if (index < start || index >= stop) this.#drop(index, row);
    }
    let next = this.list.firstElementChild;
    for (let index = start; index < stop; index++) {
      const row = this.all.get(index) ?? this.#make(index);
      if (row === next) next = next?.nextElementSibling ?? null;
      else this.list.insertBefore(row, next);
      row.show(pages?.at(index), index, pages?.length ?? 0);
      this.#mark(row, index);
    }
  }

  /**
   * Measure the rows. Returns the sum of the differences from the heights used before.
   *
   * @param {import("./row-heights.js").Heights} heights
   */
  measure(heights) {
    let change = 0;
    for (const [index, row] of this.all) {
      change += Math.abs(heights.learn(index, row.getBoundingClientRect().height));
    }
    return change;
  }

  /** Show which row has the focus and which are chosen. */
  mark() {
    this.all.forEach((row, index) => this.#mark(row, index));
    const { focus } = get();
    const row = focus === null ? undefined : this.all.get(focus);
    if (row && !row.contains(document.activeElement)) row.focus({ preventScroll: true });
  }

  /** Draw all of them again. */
  redraw() {
    this.all.forEach((row) => row.redraw());
  }

  /** @param {number} index */
  #make(index) {
    const row = document.createElement("pv-message");
    row.dataset.index = String(index);
    this.all.set(index, row);
    this.sizes.observe(row);
    return row;
  }

  /**
   * @param {number} index
   * @param {HTMLElement} row
   */
  #drop(index, row) {
    // the focus must not fall out of the thread with it
    if (row.contains(document.activeElement)) this.list.parentElement?.focus({ preventScroll: true });
    this.sizes.unobserve(row);
    row.remove();
    this.all.delete(index);
  }

  /**
   * @param {HTMLElement} row
   * @param {number} index
   */
  #mark(row, index) {
    const { focus, selection } = get();
    row.classList.toggle("focused", focus === index);
    row.classList.toggle("chosen", selection !== null && index >= selection.start && index < selection.stop);
  }
}
