/**
 * What an agent would see now: each message in its window with the reason why it is included or
 * left out, the size of the other parts of the prompt, the changes since the agent's last prompt,
 * and the prompt itself.
 *
 * @typedef {import("../core/protocol.js").GetConversationsExplain} Explained
 * @typedef {Explained["explain"]} Report
 */

import { fill, h, icon } from "../core/dom.js";
import { count, t } from "../locales/locale.js";
import { visible } from "../thread/text.js";
import { diffText } from "./text-diff.js";

/**
 * @param {Explained} seen
 */
export function contextReport(seen) {
  const report = seen.explain;
  return [budget(report), since(report, seen), entries(report), parts(report), prompt(seen)];
}

/** @param {Report} report */
function budget(report) {
  const limits = [
    t("views.sees.bytes", { bytes: report.bytes, most: report.maxBytes }),
    report.maxTokens ? t("views.sees.tokensOf", { tokens: report.tokens, most: report.maxTokens }) : t("views.sees.tokens", { tokens: report.tokens }),
  ];
  return h(
    "div",
    { class: "x-budget" },
    h("p", null, limits.join(" · ")),
    h("p", { class: "muted small" }, t("views.sees.rules", { type: report.agentType, window: report.window }), " ", t(`views.sees.visibility.${report.visibility}`)),
    h("div", { class: "x-meter", role: "img", "aria-label": limits[0] }, h("span", { vars: { "--share": `${Math.min(100, (100 * report.bytes) / Math.max(report.maxBytes, 1))}%` } })),
  );
}

/** @param {Report} report */
function entries(report) {
  const list = report.entries;
  const kept = list.filter((entry) => entry.kept).length;
  const fresh = new Set(report.since?.added ?? []);
  return h(
    "section",
    { class: "v-section" },
    h("h2", null, t("views.sees.reach", { kept, dropped: list.length - kept })),
    list.length
      ? h("ol", { class: "x-entries" }, list.map((entry) => entryLine(entry, fresh.has(entry.id))))
      : h("p", { class: "muted" }, t("views.sees.nothing")),
    report.older ? h("p", { class: "muted small" }, t("views.sees.older", { n: report.older })) : null,
  );
}

/**
 * @param {Report["entries"][number]} entry
 * @param {boolean} fresh
 */
function entryLine(entry, fresh) {
  return h(
    "li",
    { class: entry.kept ? "x-entry kept" : "x-entry dropped" },
    icon(entry.kept ? "check" : "x"),
    h(
      "div",
      { class: "grow" },
      h(
        "p",
        { class: "x-who" },
        h("span", { class: "only-spoken" }, t(entry.kept ? "views.sees.kept" : "views.sees.dropped")),
        h("strong", null, visible(entry.from)),
        h("span", { class: "muted" }, t("views.sees.to", { to: entry.to === "all" ? t("views.sees.everyone") : entry.to })),
        fresh ? h("span", { class: "chip good" }, t("views.sees.new")) : null,
        h("span", { class: entry.kept ? "chip" : "chip warn" }, t(`views.reason.${entry.reason.replaceAll(" ", "-")}`)),
        h("span", { class: "muted tiny" }, entry.handle ?? ""),
      ),
      entry.text ? h("p", { class: "x-text" }, visible(entry.text)) : null,
    ),
    h("span", { class: "x-size muted" }, entry.bytes ? t("views.sees.size", { bytes: entry.bytes }) : "–"),
  );
}

/** @param {Report} report @param {Explained} seen */
function since(report, seen) {
  const change = report.since;
  if (!change)
    return h("p", { class: "x-since muted" }, t("views.sees.first"));
  const signed = `${change.bytes > 0 ? "+" : change.bytes < 0 ? "−" : "±"}${count(Math.abs(change.bytes))}`;
  return h(
    "section",
    { class: "x-since" },
    h("h2", null, t("views.sees.since")),
    h(
      "p",
      { class: "h-counts" },
      change.added.length ? h("span", { class: "v-new" }, t("views.sees.added", { n: change.added.length })) : null,
      change.gone.length ? h("span", { class: "v-gone" }, t("views.sees.gone", { n: change.gone.length })) : null,
      h("span", { class: "muted" }, t("views.sees.stayed", { n: change.stayed.length })),
      h("span", { class: "muted" }, t("views.sees.delta", { bytes: signed })),
    ),
    change.systemChanged ? h("p", { class: "small" }, t("views.sees.systemChanged")) : null,
    change.teamTaskChanged ? h("p", { class: "small" }, t("views.sees.taskChanged")) : null,
    typeof seen.previousPrompt === "string" ? compared(seen.previousPrompt, seen.prompt) : null,
  );
}

/**
 * The last prompt compared with the next one, word by word; computed when it is opened.
 *
 * @param {string} before
 * @param {string} now
 */
function compared(before, now) {
  const place = h("div", { class: "x-prompt d-text", tabindex: "0" });
  const draw = () =>
    fill(place, diffText(before, now).map(({ kind, text }) => (kind === "same" ? visible(text) : h(kind === "gone" ? "del" : "ins", null, visible(text)))));
  return h(
    "details",
    { ontoggle: (/** @type {any} */ event) => event.target.open && draw() },
    h("summary", null, t("views.sees.words")),
    place,
  );
}

/** @param {Report} report */
function parts(report) {
  const some = report.parts.filter((part) => part.bytes > 0);
  if (!some.length) return null;
  return h(
    "details",
    { class: "v-section" },
    h("summary", null, t("views.sees.rest")),
    h(
      "table",
      { class: "v-table" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, t("views.sees.part")), h("th", { scope: "col" }, t("views.sees.partBytes")), h("th", { scope: "col" }, t("views.sees.partTokens")))),
      h("tbody", null, some.map((part) => h("tr", null, h("th", { scope: "row" }, part.name), h("td", null, count(part.bytes)), h("td", null, count(part.tokens))))),
    ),
  );
}

/** @param {Explained} seen */
function prompt(seen) {
  return h(
    "details",
    { class: "v-section" },
    h("summary", null, t("views.sees.prompt")),
    seen.systemFlag ? [h("h3", null, t("views.sees.system")), h("pre", { class: "x-prompt", tabindex: "0" }, seen.systemFlag)] : null,
    h("pre", { class: "x-prompt", tabindex: "0" }, seen.prompt || t("views.noText")),
  );
}
