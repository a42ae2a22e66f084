/**
 * The rows beside the history picture: one per version or per run of appends, with its forks and
 * the start of a batch. A row that added messages shows their first words when it becomes visible.
 *
 * @typedef {import("./timeline.js").Row} Row
 */

import { h, icon } from "../core/dom.js";
import { format } from "../core/routes.js";
import { canWrite, get } from "../core/state.js";
import { clock, t } from "../locales/locale.js";
import { visible } from "../thread/text.js";
import { covers } from "./history-picture.js";
import { firstWords, messageText } from "./message-text.js";
import { describeRow } from "./version-changes.js";

/**
 * @typedef {object} RowContext
 * @property {number} now               the newest version
 * @property {number | null} reached    the version that the keyboard is on
 * @property {(row: Row, event: MouseEvent) => void} choose
 * @property {(row: Row) => void} focus
 * @property {(row: Row) => void} point
 * @property {() => void} leave
 * @property {(fork: import("./timeline.js").Fork) => void} merge
 */

/**
 * @param {import("./history-picture.js").Line} line
 * @param {RowContext} context
 */
export function lineRow(line, context) {
  const vars = { "--height": `${line.height}px` };
  if (line.type === "batch")
    return h("li", { class: "h-batch", vars }, h("span", null, t("views.history.batch", { n: line.batch })));
  if (line.type === "fork") return h("li", { class: "h-fork", vars }, forkLink(line.fork), forkMerge(line.fork, context));
  return versionRow(line.row, vars, context);
}

/** A link to a fork. Its id is shown if it still has its parent's title. @param {import("./timeline.js").Fork} fork */
function forkLink({ id, title, length }) {
  const name = title && title !== get().head?.title ? title : id;
  return h(
    "a",
    { href: format({ id }), data: { focus: `fork-${id}` } },
    h("span", { class: "h-what clip" }, visible(name)),
    h("span", { class: "h-when" }, t("views.history.forkOf", { n: length })),
  );
}

/**
 * @param {import("./timeline.js").Fork} fork
 * @param {RowContext} context
 */
function forkMerge(fork, { merge }) {
  if (!canWrite()) return null;
  const label = t("views.merge.take", { name: fork.id });
  const data = { focus: `merge-${fork.id}` };
  return h("button", { type: "button", class: "quiet", title: label, "aria-label": label, data, onclick: () => merge(fork) }, icon("merge"));
}

/**
 * @param {Row} row
 * @param {Record<string, string>} vars
 * @param {RowContext} context
 */
function versionRow(row, vars, { now, reached, choose, focus, point, leave }) {
  const shown = covers(row, get().viewing);
  const names = ["h-version", row.onLine ? "" : "left", row.edits ? "edits" : "", shown ? "shown" : ""];
  const number =
    row.count > 1 ? t("views.history.span", { first: String(row.first), last: String(row.last) }) : String(row.last);
  return h(
    "li",
    { class: names.filter(Boolean).join(" "), vars },
    h(
      "button",
      {
        type: "button",
        class: "h-button",
        tabindex: covers(row, reached) ? "0" : "-1",
        "aria-current": shown ? "true" : null,
        data: { focus: row.key, version: row.last, first: row.first, adds: row.count === 1 && row.change.kind === "append" ? "" : null },
        onclick: (/** @type {MouseEvent} */ event) => choose(row, event),
        onfocus: () => focus(row),
        onblur: leave,
        onpointerenter: () => point(row),
        onpointerleave: leave,
      },
      h("span", { class: "h-number" }, number),
      h("span", { class: "h-what clip" }, describeRow(row)),
      covers(row, now) ? h("span", { class: "chip accent" }, t("views.history.now")) : null,
      row.onLine ? null : h("span", { class: "only-spoken" }, t("views.history.left")),
      h("span", { class: "h-when" }, clock(Number(row.change.at))),
    ),
  );
}

/**
 * Show the first words of added messages in the rows that become visible.
 *
 * @param {HTMLElement} scroll
 * @param {import("./version-changes.js").VersionChanges} changes
 * @returns {() => void}  stop watching
 */
export function fillPreviews(scroll, changes) {
  const watching = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        watching.unobserve(target);
        say(/** @type {HTMLElement} */ (target), changes);
      }
    },
    { root: scroll, rootMargin: "100px" },
  );
  for (const row of scroll.querySelectorAll(".h-button[data-adds]")) watching.observe(row);
  return () => watching.disconnect();
}

/**
 * @param {HTMLElement} row
 * @param {import("./version-changes.js").VersionChanges} changes
 */
async function say(row, changes) {
  const version = Number(row.dataset.version);
  try {
    const { added, addedCount } = await changes.between(version - 1, version);
    const place = row.querySelector(".h-what");
    if (!place || addedCount !== 1) return;
    const [{ message }] = added;
    const words = firstWords(messageText(message), 80);
    if (words) place.replaceChildren(h("span", { class: `v-role ${message.role}` }, t(`views.role.${message.role}`)), " ", ...visible(words));
  } catch {
    // the row already says what happened, only without the words
  }
}

/** Where a fork came from. @param {import("./timeline.js").Versions} data */
export function parentLine({ parent }) {
  if (!parent) return null;
  return h(
    "p",
    { class: "h-parent" },
    icon("fork"),
    t("views.history.from", { version: String(parent.at) }),
    h("a", { href: format({ id: parent.id }), data: { focus: "parent" } }, parent.id),
  );
}
