/**
 * What happens on the server, as it happens. One connection for the whole page, opened anew after
 * a break where it left off, so that each stored event comes once and in order; what is volatile
 * (a step's deltas) may be missed in a break, and `resumed` tells that.
 *
 * @typedef {{conversation?: string, version?: number, at?: number, [key: string]: any}} LiveData
 * @typedef {(data: LiveData, name: string) => void} Listener
 */

import { address } from "./api.js";

/** The names of the server's events; a browser hears only those it asked for by name. */
export const NAMES = Object.freeze([
  "message.added",
  "history.edited",
  "history.rolled_back",
  "tool.pending",
  "tool.running",
  "tool.completed",
  "tool.error",
  "tool.progress",
  "usage.updated",
  "tokens.exceeded",
  "compaction.done",
  "team_task.changed",
  "message.erased",
  "step.started",
  "step.delta",
  "step.ended",
  "team.turn",
  "conversation.changed",
  "conversation.deleted",
]);

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;

class Live {
  constructor() {
    /** @type {Map<string, Set<Listener>>} */
    this.listeners = new Map();
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {"off" | "connecting" | "open" | "lost"} */
    this.status = "off";
    this.cursor = "";
    this.wait = FIRST_WAIT;
    this.timer = 0;
    this.wasOpen = false;
  }

  /**
   * Hear an event by its name, `*` for all, `status` when the connection changes, or `resumed`
   * when it is back after a break. Call what this returns to stop.
   *
   * @param {string} name
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
    this.#tell("connecting");
    const source = new EventSource(address("events", { after: this.cursor || null }));
    this.source = source;
    source.onopen = () => this.#opened();
    source.onerror = () => this.#broke();
    for (const name of NAMES) {
      source.addEventListener(name, (event) => this.#heard(name, /** @type {MessageEvent} */ (event)));
    }
  }

  /** Disconnect, and stay so. */
  stop() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
    this.wasOpen = false;
    this.#tell("off");
  }

  #opened() {
    const back = this.wasOpen;
    this.wasOpen = true;
    this.wait = FIRST_WAIT;
    this.#tell("open");
    if (back) this.#emit("resumed", {});
  }

  /** The browser would try again by itself, but not after every kind of failure; so we do. */
  #broke() {
    this.source?.close();
    this.source = null;
    this.#tell("lost");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(), this.wait);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  /**
   * @param {string} name
   * @param {MessageEvent} event
   */
  #heard(name, event) {
    if (event.lastEventId) this.cursor = event.lastEventId;
    this.#emit(name, JSON.parse(event.data));
  }

  /** @param {"off" | "connecting" | "open" | "lost"} status */
  #tell(status) {
    this.status = status;
    this.#emit("status", { status });
  }

  /**
   * @param {string} name
   * @param {LiveData} data
   */
  #emit(name, data) {
    for (const heard of [this.listeners.get(name), this.listeners.get("*")]) {
      heard?.forEach((listener) => listener(data, name));
    }
  }
}

export const live = new Live();
