/**
 * The rows beside the picture: a version each, or a run of plain additions, the forks that left it,
 * and where a batch begins. A row that added messages says their first words once it is seen.
 *
 * @typedef {import("./timeline.js").Row} Row
 */

import { h, icon } from "../dom.js";
import { format } from "../routes.js";
import { canWrite, get } from "../state.js";
import { clock, t } from "../words.js";
import { covers } from "./history_picture.js";
import { firstWords, messageText } from "./message_text.js";
import { saidOf } from "./saying_change.js";

/**
 * @typedef {object} Reading
 * @property {number} now               the newest version
 * @property {number | null} reached    the version that the keyboard is on
 * @property {(row: Row, event: MouseEvent) => void} choose
 * @property {(row: Row) => void} focus
 * @property {(row: Row) => void} point
 * @property {() => void} leave
 * @property {(fork: import("./timeline.js").Fork) => void} merge
 */

/**
 * @param {import("./history_picture.js").Line} line
 * @param {Reading} reading
 */
export function lineRow(line, reading) {
  const vars = { "--height": `${line.height}px` };
  if (line.type === "batch")
    return h("li", { class: "h-batch", vars }, h("span", null, t("views.history.batch", { n: line.batch })));
  if (line.type === "fork") return h("li", { class: "h-fork", vars }, forkLink(line.fork), forkMerge(line.fork, reading));
  return versionRow(line.row, vars, reading);
}

/** A fork begins with the title of what it left; then its id tells more. @param {import("./timeline.js").Fork} fork */
function forkLink({ id, title, length }) {
  const name = title && title !== get().head?.title ? title : id;
  return h(
    "a",
    { href: format({ id }), data: { focus: `fork-${id}` } },
    h("span", { class: "h-what clip" }, name),
    h("span", { class: "h-when" }, t("views.history.forkOf", { n: length })),
  );
}

/**
 * @param {import("./timeline.js").Fork} fork
 * @param {Reading} reading
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
 * @param {Reading} reading
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
      h("span", { class: "h-what clip" }, saidOf(row)),
      covers(row, now) ? h("span", { class: "chip accent" }, t("views.history.now")) : null,
      row.onLine ? null : h("span", { class: "only-spoken" }, t("views.history.left")),
      h("span", { class: "h-when" }, clock(Number(row.change.at))),
    ),
  );
}

/**
 * Say the first words of what was added, in the rows that come into sight.
 *
 * @param {HTMLElement} scroll
 * @param {import("./changes.js").Changes} changes
 * @returns {() => void}  stop watching
 */
export function sayFirstWords(scroll, changes) {
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
 * @param {import("./changes.js").Changes} changes
 */
async function say(row, changes) {
  const version = Number(row.dataset.version);
  try {
    const { added, addedCount } = await changes.between(version - 1, version);
    const place = row.querySelector(".h-what");
    if (!place || addedCount !== 1) return;
    const [{ message }] = added;
    const words = firstWords(messageText(message), 80);
    if (words) place.replaceChildren(h("span", { class: `v-role ${message.role}` }, t(`views.role.${message.role}`)), ` ${words}`);
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
