/**
 * The server's events, over one connection for the whole page. After a break the connection resumes
 * at the last event id, so that each stored event arrives once and in order. Events that are not
 * stored (a step's deltas) can be missed during a break; the `resumed` event reports that.
 *
 * @typedef {import("./protocol.js").EventName} EventName
 * @typedef {"off" | "connecting" | "open" | "lost"} Status
 * @typedef {{conversation?: string, version?: number, at?: number, [key: string]: any}} LiveData
 * @typedef {(data: LiveData, name: EventName | "status" | "resumed") => void} Listener
 */

import { address } from "./api.js";
import { EVENTS } from "./protocol.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;

class Live {
  constructor() {
    /** @type {Map<string, Set<Listener>>} */
    this.listeners = new Map();
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {Status} */
    this.status = "off";
    this.cursor = "";
    this.wait = FIRST_WAIT;
    this.timer = 0;
    this.wasOpen = false;
  }

  /**
   * Subscribe to an event by its name, `*` for all, `status` when the connection changes, or `resumed`
   * when it is back after a break. Call what this returns to stop.
   *
   * @param {EventName | "*" | "status" | "resumed"} name
   * @param {Listener} listener
   * @returns {() => void}
   */
  on(name, listener) {
    const heard = this.listeners.get(name) ?? new Set();
    this.listeners.set(name, heard.add(listener));
    return () => heard.delete(listener);
  }

  /**
   * Connect.
   *
   * @param {string | number} [cursor]  hear what happened since
   */
  start(cursor) {
    if (this.source) return;
    if (cursor !== undefined) this.cursor = String(cursor);
    this.#setStatus("connecting");
    const source = new EventSource(address("events", { after: this.cursor || null }));
    this.source = source;
    source.onopen = () => this.#opened();
    source.onerror = () => this.#broke();
    for (const name of EVENTS) {
      source.addEventListener(name, (event) => this.#receive(name, /** @type {MessageEvent} */ (event)));
    }
  }

  /** Disconnect. */
  stop() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
    this.wasOpen = false;
    this.#setStatus("off");
  }

  #opened() {
    const back = this.wasOpen;
    this.wasOpen = true;
    this.wait = FIRST_WAIT;
    this.#setStatus("open");
    if (back) this.#emit("resumed", {});
  }

  /** Reconnect after a while. The browser does so by itself, but not after every kind of failure. */
  #broke() {
    this.source?.close();
    this.source = null;
    this.#setStatus("lost");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(), this.wait);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  /**
   * @param {EventName} name
   * @param {MessageEvent} event
   */
  #receive(name, event) {
    if (event.lastEventId) this.cursor = event.lastEventId;
    this.#emit(name, JSON.parse(event.data));
  }

  /** @param {Status} status */
  #setStatus(status) {
    this.status = status;
    this.#emit("status", { status });
  }

  /**
   * @param {EventName | "status" | "resumed"} name
   * @param {LiveData} data
   */
  #emit(name, data) {
    for (const heard of [this.listeners.get(name), this.listeners.get("*")]) {
      heard?.forEach((listener) => listener(data, name));
    }
  }
}

export const live = new Live();
