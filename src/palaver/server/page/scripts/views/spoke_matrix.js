/**
 * Who spoke to whom, as a table: a row for who spoke, a column for who was addressed, and a shade
 * for how often. A table reads on a phone and to a screen reader, where arcs do neither.
 *
 * @typedef {{from: string, to: string, count: number}} Spoke
 */

import { h } from "../dom.js";
import { count, t } from "../words.js";

const SHADES = 4;

/** Who is addressed when nobody is named; nobody speaks as all. */
const ALL = "all";

/**
 * @param {Spoke[]} spoke
 * @param {{id: string, name: string}[]} members
 */
export function spokeMatrix(spoke, members) {
  const names = new Map(members.map(({ id, name }) => [id, name]));
  const seen = new Set(spoke.flatMap(({ from, to }) => [from, to]));
  const everyone = [...members.map(({ id }) => id), ...[...seen].filter((id) => !names.has(id))];
  const most = Math.max(1, ...spoke.map((each) => each.count));
  const counts = new Map(spoke.map(({ from, to, count: times }) => [`${from}\n${to}`, times]));
  const called = (/** @type {string} */ id) => names.get(id) ?? (id === ALL ? t("views.team.all") : id);
  const cell = (/** @type {string} */ from, /** @type {string} */ to) => {
    const times = counts.get(`${from}\n${to}`) ?? 0;
    const shade = times ? Math.ceil((SHADES * times) / most) : 0;
    return h(
      "td",
      { class: `m-cell shade-${shade}`, title: times ? t("views.team.spoke", { from: called(from), to: called(to), n: times }) : null },
      times ? count(times) : h("span", { class: "only-spoken" }, "0"),
    );
  };
  return h(
    "div",
    { class: "m-scroll", tabindex: "0", role: "region", "aria-label": t("views.team.matrix") },
    h(
      "table",
      { class: "m-table" },
      h("caption", { class: "only-spoken" }, t("views.team.matrix")),
      h("thead", null, h("tr", null, h("th", { scope: "col", class: "m-corner" }, t("views.team.fromTo")), everyone.map((id) => h("th", { scope: "col" }, h("span", { class: "clip" }, called(id)))))),
      h("tbody", null, everyone.filter((id) => id !== ALL).map((from) => h("tr", null, h("th", { scope: "row" }, h("span", { class: "clip" }, called(from))), everyone.map((to) => cell(from, to))))),
    ),
  );
}
