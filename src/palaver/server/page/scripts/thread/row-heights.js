/**
 * The heights of the rows of a long list, of which only the visible ones are measured. Every other
 * row counts an estimate. Differences from the estimate are summed in a sparse Fenwick tree, so
 * that a lookup or a correction costs O(log n) and rows that were never visible cost no memory.
 */

/** The height limit in pixels; browsers stop at about 33 million. A higher list is scaled down. */
const HIGHEST = 15_000_000;

export class Heights {
  /**
   * @param {number} length  rows
   * @param {number} guess   height of a row, until it is known
   */
  constructor(length, guess) {
    this.length = length;
    this.guess = Math.min(guess, HIGHEST / Math.max(length, 1));
    this.size = powerOfTwo(length);
    /** @type {Map<number, number>} differences from the guess, summed by Fenwick's ranges */
    this.sums = new Map();
    /** @type {Map<number, number>} row → measured height */
    this.known = new Map();
  }

  /** The height of all rows. */
  get total() {
    return this.before(this.length);
  }

  /**
   * The height of the rows before one.
   *
   * @param {number} row
   * @returns {number}
   */
  before(row) {
    let sum = row * this.guess;
    for (let at = row; at > 0; at -= at & -at) sum += this.sums.get(at) ?? 0;
    return sum;
  }

  /**
   * The row at an offset from the top.
   *
   * @param {number} offset
   * @returns {number}
   */
  rowAt(offset) {
    let row = 0;
    let left = offset;
    for (let step = this.size; step > 0; step >>= 1) {
      const height = step * this.guess + (this.sums.get(row + step) ?? 0);
      if (row + step <= this.length && height <= left) {
        row += step;
        left -= height;
      }
    }
    return Math.max(0, Math.min(row, this.length - 1));
  }

  /**
   * Set a row's measured height. Returns the difference from the height used before.
   *
   * @param {number} row
   * @param {number} height
   * @returns {number}
   */
  learn(row, height) {
    const change = height - (this.known.get(row) ?? this.guess);
    if (change === 0) return 0;
    this.known.set(row, height);
    for (let at = row + 1; at <= this.size; at += at & -at) {
      this.sums.set(at, (this.sums.get(at) ?? 0) + change);
    }
    return change;
  }

  /**
   * The heights of a list with the same rows and more after them.
   *
   * @param {number} length
   * @returns {Heights}
   */
  grown(length) {
    if (length <= this.size && length * this.guess <= HIGHEST) {
      this.length = length;
      return this;
    }
    const larger = new Heights(length, this.guess);
    for (const [row, height] of this.known) larger.learn(row, height);
    return larger;
  }
}

/** @param {number} least */
function powerOfTwo(least) {
  let size = 1;
  while (size < least) size *= 2;
  return size;
}
