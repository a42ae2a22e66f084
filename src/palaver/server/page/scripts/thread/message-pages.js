/**
 * The messages of one version, fetched page by page. A version never changes, so a page stays
 * valid; only the pages used last are held. A new request replaces the pending ones, so that fast
 * scrolling fetches few pages.
 *
 * @typedef {import("../core/api.js").Item} Item
 */

import { api, url } from "../core/api.js";
import { learn, textsOf } from "./markdown.js";

const SIZE = 50;
const MOST_PAGES = 60;
const AT_ONCE = 2;

export class MessagePages {
  /**
   * @param {string} id
   * @param {number} version
   * @param {number} length
   * @param {{arrived: () => void, failed: (error: unknown) => void}} callbacks
   */
  constructor(id, version, length, callbacks) {
    this.id = id;
    this.version = version;
    this.length = length;
    this.callbacks = callbacks;
    /** @type {Map<number, Item[]>} page → items, the last used last */
    this.pages = new Map();
    /** @type {number[]} */
    this.wanted = [];
    /** @type {Map<number, AbortController>} */
    this.asked = new Map();
  }

  /**
   * The item at an index; undefined until it has arrived.
   *
   * @param {number} index
   * @returns {Item | undefined}
   */
  at(index) {
    return this.pages.get(Math.floor(index / SIZE))?.[index % SIZE];
  }

  /**
   * The number of messages of a role from an index on, among those that have arrived.
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
   * Fetch these rows instead of those that are still pending.
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
   * The pages of a longer version with the same messages; all full pages are taken over.
   *
   * @param {number} version
   * @param {number} length
   * @returns {MessagePages}
   */
  grown(version, length) {
    const later = new MessagePages(this.id, version, length, this.callbacks);
    for (const [page, items] of this.pages) {
      if (items.length === SIZE) later.pages.set(page, items);
    }
    return later;
  }

  /** Fetch the number of messages in this version. */
  async measure() {
    const query = { version: this.version, start: -1 };
    const answer = await api.get(url`conversations/${this.id}/messages`, { query });
    this.length = answer.length;
  }

  /**
   * Fetch these rows and wait for them.
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

  /** Cancel all requests. */
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
      this.callbacks.arrived();
    } catch (error) {
      this.asked.delete(page);
      this.callbacks.failed(error);
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
    // before anything is drawn: a message must not change its look when it is on the screen
    await learn(answer.items.flatMap((/** @type {Item} */ { message }) => textsOf(message)));
    this.pages.set(page, answer.items);
    for (const oldest of [...this.pages.keys()].slice(0, -MOST_PAGES)) this.pages.delete(oldest);
  }
}
