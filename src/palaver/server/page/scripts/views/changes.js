/**
 * What versions changed. A version never changes again, so each difference is asked for once; only
 * an erasure makes them all new.
 */

import { api, url } from "../api.js";
import { fill, h } from "../dom.js";
import { get } from "../state.js";
import { t } from "../words.js";
import { saying } from "./pane.js";
import { changeSummary } from "./saying_change.js";

/** As many messages as a summary shows, however many came or went. */
const LISTED = 3;

export class Changes {
  constructor() {
    /** @type {Map<string, Promise<any>>} */
    this.known = new Map();
  }

  clear() {
    this.known.clear();
  }

  /**
   * @param {number} before
   * @param {number} after
   * @returns {Promise<any>}
   */
  between(before, after) {
    const key = `${get().id} ${before} ${after}`;
    const known = this.known.get(key);
    if (known) return known;
    const asked = api.get(url`conversations/${get().id}/diff`, { query: { before, after, limit: LISTED } });
    this.known.set(key, asked);
    asked.catch(() => this.known.delete(key)); // another try may do better
    return asked;
  }

  /**
   * Fill a place with what came and went on the way to a version.
   *
   * @param {HTMLElement} place
   * @param {number} version
   * @param {number} [before]
   */
  async tell(place, version, before = version - 1) {
    if (version <= 0) {
      fill(place, h("p", { class: "h-nothing" }, t("views.history.begins")));
      return;
    }
    try {
      fill(place, changeSummary(await this.between(Math.max(before, 0), version)));
    } catch (error) {
      fill(place, h("p", { class: "h-nothing" }, saying(error)));
    }
  }
}
