/**
 * A change of a conversation in the reader's words: what was done, and where.
 */

import { t } from "../words.js";
import { firstWords, messageText } from "./message_text.js";
import { h } from "../dom.js";

/** The kinds that have words of their own; another kind is named as it is. */
const KNOWN = new Set([
  "append", "clear", "compact", "create", "delete", "erase", "filter", "fork", "import", "insert",
  "mark", "merge", "prune", "redo", "replace", "restore", "rollback", "team_task", "truncate",
  "undo", "unmark",
]);

/**
 * @param {import("./timeline.js").Row} row
 * @returns {string}
 */
export function saidOf({ change, count, added }) {
  if (count > 1) return t("views.history.appends", { n: added });
  return saidOfChange(change);
}

/**
 * @param {import("./timeline.js").Change} change
 * @returns {string}
 */
export function saidOfChange({ kind, added, returns, description }) {
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
 * What came and what went, with the first words of the first few.
 *
 * @param {import("./edit_script.js").Difference} difference
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
    h("span", { class: "v-words" }, firstWords(messageText(message)) || t("views.noText")),
  );
}
