/**
 * The messages of one version, fetched page by page as they are looked at. A version never
 * changes, so a page that came is right for good; only the newest ones seen are kept. What is
 * wanted now replaces what was wanted before: a reader who rushes past a thousand pages makes the
 * server send a few.
 *
 * @typedef {import("./api.js").Item} Item
 */

import { api, url } from "./api.js";

const SIZE = 50;
const KEPT = 60;
const AT_ONCE = 2;

export class Pages {
  /**
   * @param {string} id
   * @param {number} version
   * @param {number} length
   * @param {{arrived: () => void, failed: (error: unknown) => void}} tell
   */
  constructor(id, version, length, tell) {
    this.id = id;
    this.version = version;
    this.length = length;
    this.tell = tell;
    /** @type {Map<number, Item[]>} page → items, the last used last */
    this.pages = new Map();
    /** @type {number[]} */
    this.wanted = [];
    /** @type {Map<number, AbortController>} */
    this.asked = new Map();
  }

  /**
   * The item at an index, when it is here.
   *
   * @param {number} index
   * @returns {Item | undefined}
   */
  at(index) {
    return this.pages.get(Math.floor(index / SIZE))?.[index % SIZE];
  }

  /**
   * How many messages of a role there are from an index on, as far as they are here.
   *
   * @param {number} start
   * @param {string} role
   */
  countFrom(start, role) {
    let found = 0;
    for (let index = start; index < this.length; index++) found += Number(this.at(index)?.message.role === role);
    return found;
  }

  /**
   * Have these rows fetched, and forget what was wanted before.
   *
   * @param {number} start
   * @param {number} stop
   */
  want(start, stop) {
    this.wanted = [];
    for (let page = Math.floor(start / SIZE); page * SIZE < stop; page++) {
      const here = this.pages.get(page);
      if (here) {
        this.pages.delete(page);
        this.pages.set(page, here);
      } else if (!this.asked.has(page)) {
        this.wanted.push(page);
      }
    }
    this.#ask();
  }

  /**
   * The same messages with more after them: what is here stays, but for the page that was not full.
   *
   * @param {number} version
   * @param {number} length
   * @returns {Pages}
   */
  grown(version, length) {
    const later = new Pages(this.id, version, length, this.tell);
    for (const [page, items] of this.pages) {
      if (items.length === SIZE) later.pages.set(page, items);
    }
    return later;
  }

  /** Learn how many messages this version has. */
  async measure() {
    const query = { version: this.version, start: -1 };
    const answer = await api.get(url`conversations/${this.id}/messages`, { query });
    this.length = answer.length;
  }

  /**
   * Have these rows here before going on.
   *
   * @param {number} start
   * @param {number} stop
   */
  async load(start, stop) {
    const missing = [];
    for (let page = Math.floor(start / SIZE); page * SIZE < stop; page++) {
      if (!this.pages.has(page)) missing.push(this.#get(page));
    }
    await Promise.all(missing);
  }

  /** Fetch nothing more. */
  stop() {
    this.wanted = [];
    this.asked.forEach((request) => request.abort());
  }

  #ask() {
    while (this.asked.size < AT_ONCE && this.wanted.length) {
      this.#fetch(/** @type {number} */ (this.wanted.shift()));
    }
  }

  /** @param {number} page */
  async #fetch(page) {
    const request = new AbortController();
    this.asked.set(page, request);
    try {
      await this.#get(page, request.signal);
      this.asked.delete(page);
      this.tell.arrived();
    } catch (error) {
      this.asked.delete(page);
      this.tell.failed(error);
    }
    this.#ask();
  }

  /**
   * @param {number} page
   * @param {AbortSignal} [signal]
   */
  async #get(page, signal) {
    const start = page * SIZE;
    const query = { version: this.version, start, stop: Math.min(start + SIZE, this.length), tokens: true };
    const answer = await api.get(url`conversations/${this.id}/messages`, { query, signal });
    this.pages.set(page, answer.items);
    for (const oldest of [...this.pages.keys()].slice(0, -KEPT)) this.pages.delete(oldest);
  }
}
