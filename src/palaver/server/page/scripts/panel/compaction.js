/**
 * Compaction by hand: choose a strategy, preview what would be removed, then apply it. A compaction
 * is an ordinary edit and can be undone.
 *
 * @typedef {import("../core/protocol.js").PostConversationsCompact} Compacted
 */

import { api, url } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { announceEdit } from "../shell/toast.js";
import { field, number } from "./edit-forms.js";
import { messageText, preview } from "./message-text.js";
import { errorText } from "./panel-view.js";

const WAYS = Object.freeze(["clear-outputs", "drop-oldest", "summarise"]);
const SHOWN = 12;

/** The size that each strategy keeps: its name in the request, and the default. */
const ROOM = Object.freeze({
  "clear-outputs": { name: "protectTokens", value: 1000 },
  "drop-oldest": { name: "keepTokens", value: 1000 },
  summarise: { name: "keepTokens", value: 1000 },
});

export function compaction() {
  /** @type {keyof typeof ROOM} */
  let kind = "clear-outputs";
  let amount = NaN;
  const place = h("div", { class: "t-preview", "aria-live": "polite" });
  const look = /** @type {HTMLButtonElement} */ (h("button", { type: "submit", data: { focus: "preview" } }, t("views.compact.look")));
  const keepField = number(NaN, { min: 0, placeholder: String(ROOM[kind].value), data: { focus: "keep" } }, (value) => {
    amount = value;
    fill(place);
  });
  // what is done is what was looked at: `seen` is the version that the preview was of
  const ask = async (/** @type {boolean} */ preview, /** @type {number | undefined} */ seen = undefined) => {
    look.disabled = true;
    fill(place, h("p", { class: "muted" }, t(kind === "summarise" ? "views.compact.summarising" : "views.compact.working")));
    const room = ROOM[kind];
    const body = { kind, preview, [room.name]: Number.isInteger(amount) ? amount : room.value, ...model(kind) };
    try {
      const answer = await api.post(url`conversations/${get().id}/compact`, body, { version: seen });
      if (preview) fill(place, previewOf(answer, () => ask(false, answer.version), () => fill(place)));
      else {
        fill(place);
        announceEdit(t("views.compact.done"), answer.version);
      }
      place.querySelector("button")?.focus();
    } catch (error) {
      fill(place, h("p", { class: "v-bad", role: "alert" }, errorText(error)));
    } finally {
      look.disabled = false;
    }
  };
  const ways = WAYS.map((way) =>
    h(
      "label",
      { class: "t-way" },
      h("input", {
        type: "radio",
        name: "way",
        value: way,
        checked: way === kind,
        data: { focus: `way-${way}` },
        onchange: () => {
          kind = /** @type {keyof typeof ROOM} */ (way);
          fill(place);
        },
      }),
      h("span", null, h("b", null, t(`views.compact.${way}`)), h("small", { class: "muted" }, t(`views.compact.${way}.says`))),
    ),
  );
  const submitted = (/** @type {Event} */ event) => {
    event.preventDefault();
    ask(true);
  };
  return h(
    "section",
    { class: "v-section t-compact" },
    h("h2", null, t("views.compact.title")),
    h(
      "form",
      { onsubmit: submitted },
      h("fieldset", { class: "t-ways" }, h("legend", { class: "only-spoken" }, t("views.compact.title")), ways),
      h("div", { class: "t-keep" }, field(t("views.compact.keep"), keepField), look),
    ),
    place,
  );
}

/** A summary is written by the model of the reader's choice. @param {string} kind */
function model(kind) {
  const chosen = get().model;
  return kind === "summarise" && chosen ? { model: chosen } : {};
}

/**
 * @param {Compacted} answer
 * @param {() => void} apply
 * @param {() => void} cancel
 */
function previewOf(answer, apply, cancel) {
  const { before, after, removed, added, result } = answer;
  if (result === null) return h("p", { role: "status" }, t("views.compact.nothing"));
  return [
    h(
      "p",
      { class: "t-change", role: "status" },
      t("views.compact.change", {
        messages: t("views.price.fromTo", { before: before.messages, after: after.messages }),
        tokens: t("views.price.fromTo", { before: before.tokens, after: after.tokens }),
      }),
    ),
    answer.cacheLost ? h("p", { class: "muted small" }, t("views.price.cache", { n: answer.cacheLost })) : null,
    group("dropped", removed, (each) => entry("gone", each, each.text)),
    group("added", added, (each) => entry("new", each, messageText(each))),
    h("p", { class: "muted small" }, t("views.compact.stays", { n: Math.max(after.messages - added.length, 0) })),
    h("div", { class: "row wrap" }, h("button", { type: "button", class: "primary", onclick: apply }, t("views.compact.do")), h("button", { type: "button", onclick: cancel }, t("views.cancel"))),
  ];
}

/**
 * @param {string} name
 * @param {any[]} items
 * @param {(item: any) => any} draw
 */
function group(name, items, draw) {
  if (!items.length) return null;
  return h(
    "details",
    { open: true },
    h("summary", null, t(`views.compact.${name}`, { n: items.length })),
    h("ul", { class: "h-lines" }, items.slice(0, SHOWN).map(draw)),
    items.length > SHOWN ? h("p", { class: "muted tiny" }, t("views.price.more", { n: items.length - SHOWN })) : null,
  );
}

/**
 * @param {"gone" | "new"} kind
 * @param {any} item
 * @param {string} text
 */
function entry(kind, { index, role }, text) {
  const where = index === undefined || index === null ? "" : `${index} `;
  return h(
    "li",
    { class: `v-${kind}` },
    h("span", { class: "v-sign", "aria-hidden": "true" }, kind === "new" ? "+" : "−"),
    h("span", { class: "v-where" }, `${where}${t(`views.role.${role}`)}`),
    h("span", { class: "v-words" }, preview(text ?? "", 120)),
  );
}
