/**
 * What each version changed, fetched once per version and described in text. A version never
 * changes; only an erasure clears what was fetched.
 */

import { api, url } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { messageText, preview } from "./message-text.js";
import { errorText } from "./panel-view.js";

/** The number of messages that a summary shows. */
const LISTED = 3;

export class VersionChanges {
  constructor() {
    /** @type {Map<string, Promise<import("./edit-script.js").Difference>>} */
    this.known = new Map();
  }

  clear() {
    this.known.clear();
  }

  /**
   * @param {number} before
   * @param {number} after
   * @returns {Promise<import("./edit-script.js").Difference>}
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
   * Fill an element with what a version added and removed.
   *
   * @param {HTMLElement} place
   * @param {number} version
   * @param {number} [before]
   */
  async show(place, version, before = version - 1) {
    if (version <= 0) {
      fill(place, h("p", { class: "h-nothing" }, t("views.history.begins")));
      return;
    }
    try {
      fill(place, changeSummary(await this.between(Math.max(before, 0), version)));
    } catch (error) {
      fill(place, h("p", { class: "h-nothing" }, errorText(error)));
    }
  }
}

/** The kinds of change that have a text; another kind is shown by its name. */
const KNOWN = new Set([
  "append", "clear", "compact", "create", "delete", "erase", "filter", "fork", "import", "insert",
  "mark", "merge", "prune", "redo", "replace", "restore", "rollback", "team_task", "truncate",
  "undo", "unmark",
]);

/**
 * @param {import("./timeline.js").Row} row
 * @returns {string}
 */
export function describeRow({ change, count, added }) {
  if (count > 1) return t("views.history.appends", { n: added });
  return describeChange(change);
}

/**
 * @param {import("./timeline.js").Change} change
 * @returns {string}
 */
export function describeChange({ kind, added, returns, description }) {
  const name = kind.toLowerCase();
  if (name === "append") return t("views.history.appends", { n: added });
  const place = /(?:index|position) (\d+)/u.exec(description ?? "")?.[1];
  if (place !== undefined && (name === "replace" || name === "insert"))
    return t(`views.kind.${name}At`, { place: Number(place) });
  if (returns !== undefined && returns !== null && KNOWN.has(name))
    return t("views.kind.returned", { what: t(`views.kind.${name}`), version: returns });
  return KNOWN.has(name) ? t(`views.kind.${name}`) : kind;
}

/**
 * What was added and removed, with the first words of the first few messages.
 *
 * @param {import("./edit-script.js").Difference} difference
 * @param {number} [most]
 */
export function changeSummary({ removed, added, removedCount, addedCount }, most = 2) {
  if (!removedCount && !addedCount)
    return h("p", { class: "h-nothing" }, t("views.history.same"));
  return [
    h(
      "p",
      { class: "h-counts" },
      addedCount ? h("span", { class: "v-new" }, t("views.diff.added", { n: addedCount })) : null,
      removedCount ? h("span", { class: "v-gone" }, t("views.diff.removed", { n: removedCount })) : null,
    ),
    h(
      "ul",
      { class: "h-lines" },
      removed.slice(0, most).map((entry) => summaryLine("gone", entry)),
      added.slice(0, most).map((entry) => summaryLine("new", entry)),
    ),
  ];
}

/**
 * @param {"gone" | "new"} kind
 * @param {{index: number, message: any}} entry
 */
function summaryLine(kind, { index, message }) {
  return h(
    "li",
    { class: `v-${kind}` },
    h("span", { class: "v-sign", "aria-hidden": "true" }, kind === "new" ? "+" : "−"),
    h("span", { class: "v-where" }, `${index} ${t(`views.role.${message.role}`)}`),
    h("span", { class: "v-words" }, preview(messageText(message))),
  );
}
