/**
 * The bar below the history, about the chosen version: what it changed, and the buttons that
 * restore it, compare it or fork from it.
 */

import { h } from "../core/dom.js";
import { go } from "../core/routes.js";
import { canWrite } from "../core/state.js";
import { t } from "../locales/locale.js";
import { describeChange } from "./version-changes.js";

/**
 * @typedef {object} Ways
 * @property {(version: number) => void} back
 * @property {(version: number | null) => void} pick
 * @property {(one: number, other: number) => void} compare
 * @property {(version: number) => void} fork
 * @property {(parent: {id: string, at: number}) => void} merge
 */

/**
 * @param {number} version
 * @param {import("./timeline.js").Versions} data
 * @param {number | null} picked
 * @param {import("./version-changes.js").VersionChanges} changes
 * @param {Ways} ways
 */
export function historyBar(version, data, picked, changes, ways) {
  const change = data.items.find((item) => item.version === version);
  const isNow = version === data.version;
  const about = h("div", { class: "h-change", "aria-live": "polite" });
  changes.show(about, version);
  return h(
    "section",
    { class: "h-bar", "aria-label": t("views.history.chosen") },
    h(
      "div",
      { class: "h-bar-head" },
      h("strong", null, t(isNow ? "views.history.isNow" : "views.history.version", { version: String(version) })),
      h("span", { class: "muted clip" }, change ? describeChange(change) : ""),
      change ? h("span", { class: "muted" }, t("views.messages", { n: change.length })) : null,
    ),
    picked === null ? about : h("p", { class: "h-pick", role: "status" }, t("views.history.pick", { version: String(picked) })),
    h("div", { class: "row wrap" }, picked === null ? buttons(version, data, ways) : button("cancelPick", () => ways.pick(null))),
  );
}

/**
 * @param {number} version
 * @param {import("./timeline.js").Versions} data
 * @param {Ways} ways
 */
function buttons(version, { version: newest, parent }, ways) {
  const fork = button("fork", () => ways.fork(version), { disabled: !canWrite() });
  const compare = button("compare", () => ways.pick(version));
  const merge = parent ? button("merge", () => ways.merge(parent), { disabled: !canWrite() }) : null;
  if (version === newest) return [compare, fork, merge];
  return [
    button("back", () => ways.back(version), { class: "primary", disabled: !canWrite() }),
    button("read", () => go({ view: null }), { class: "h-read" }),
    button("toNow", () => go({ at: null })),
    button("compareNow", () => ways.compare(version, newest)),
    compare,
    fork,
  ];
}

/**
 * @param {string} name
 * @param {() => void} run
 * @param {Record<string, any>} [props]
 */
function button(name, run, props = {}) {
  return h("button", { type: "button", data: { focus: name }, onclick: run, ...props }, t(`views.history.${name}`));
}
