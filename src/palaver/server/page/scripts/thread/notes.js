/**
 * Notes and scores on messages: how a message shows them, the dialog that changes them, and the list
 * of all of them. No model is shown any.
 *
 * @typedef {import("../core/annotations.js").Annotation} Annotation
 */

import { allAnnotations, annotate, annotationOf, versionsOf } from "../core/annotations.js";
import { fill, h, icon } from "../core/dom.js";
import { registerAction, registerCommand } from "../core/registry.js";
import { jump } from "../core/routes.js";
import { ago, count, t } from "../locales/locale.js";
import { dialog } from "../shell/dialog.js";
import { attempt } from "../shell/toast.js";
import { visible } from "./text.js";

const SCORES = Object.freeze([1, 2, 3, 4, 5]);

registerAction("note", { label: "note.action", icon: "note", keys: "a", run: ({ item }) => openNote(item) });
registerCommand("notes", { label: "notes", group: "keys.thread", icon: "note", open: true, run: openNotes });

/**
 * What was noted of a message; null if nothing was.
 *
 * @param {string} message  its id
 * @returns {HTMLElement | null}
 */
export function noteElement(message) {
  const found = annotationOf(message);
  return found ? h("aside", { class: "message-note", "aria-label": t("note.label") }, icon("note"), ...contents(found)) : null;
}

/** @param {Annotation} annotation */
function contents({ note, score, by }) {
  return [
    score === null ? null : h("span", { class: "chip warn", "aria-label": t("note.score.of", { n: count(score) }) }, "★".repeat(score), h("span", { class: "faint" }, "☆".repeat(SCORES.length - score))),
    h("p", { class: "grow" }, visible(note)),
    by ? h("span", { class: "muted tiny" }, visible(by)) : null,
  ];
}

/**
 * The dialog that changes the note and the score of a message.
 *
 * @param {import("../core/api.js").Item} item
 */
function openNote({ message, index }) {
  const now = annotationOf(message.id);
  const box = dialog();
  const field = h("textarea", { rows: 5, maxlength: 10_000, autofocus: true, value: now?.note ?? "" });
  const radios = [null, ...SCORES].map((score) =>
    h("input", { type: "radio", name: "score", value: String(score ?? ""), checked: (now?.score ?? null) === score }),
  );
  const scores = radios.map((radio) => h("label", { class: "row" }, radio, radio.value ? `${radio.value} ★` : t("note.score.none")));
  const before = h("div", { class: "note-versions" });
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const score = Number(radios.find(({ checked }) => checked)?.value) || null;
    const done = await attempt(async () => (await annotate(message.id, field.value.trim(), score), true));
    if (done) box.close();
  };
  if (now) showVersions(message.id, before);
  box.ask(
    { title: t("note.title", { n: count(index + 1) }) },
    h(
      "form",
      { onsubmit: save, onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && save(event) },
      h(
        "div",
        { class: "dialog-body" },
        h("label", { class: "field" }, h("span", null, t("note.text")), field, h("small", { class: "muted" }, t("note.hint"))),
        h("fieldset", { class: "note-scores" }, h("legend", null, t("note.score")), ...scores),
        before,
      ),
      h("footer", { class: "dialog-foot" }, h("button", { type: "button", onclick: () => box.close() }, t("cancel")), h("button", { type: "submit", class: "primary" }, t("save"))),
    ),
  );
}

/**
 * @param {string} message
 * @param {HTMLElement} place
 */
async function showVersions(message, place) {
  const versions = await attempt(() => versionsOf(message));
  if (!versions || versions.length < 2) return;
  fill(
    place,
    h(
      "details",
      { class: "fold" },
      h("summary", null, icon("right"), h("span", null, t("note.before", { n: versions.length - 1 }))),
      h("ul", { class: "fold-body" }, ...versions.slice(1).map((one) => h("li", { class: "row" }, ...(one.note || one.score ? contents(one) : [h("span", { class: "grow muted" }, t("note.removed"))]), h("time", { class: "muted tiny" }, ago(one.at))))),
    ),
  );
}

/** All notes of the conversation; a click goes to the message. */
function openNotes() {
  const box = dialog();
  const rows = allAnnotations().map((one) =>
    h(
      "li",
      null,
      h(
        "button",
        { type: "button", class: "plain note-row", disabled: one.index === null, onclick: () => (box.close(), one.index !== null && jump(one.index)) },
        h("span", { class: "muted tiny mono" }, one.index === null ? t("note.gone") : `#${one.index}`),
        ...contents(one),
      ),
    ),
  );
  box.ask({ title: t("notes"), wide: true }, rows.length ? h("ul", { class: "dialog-body note-list" }, ...rows) : h("p", { class: "dialog-body muted" }, t("notes.none")));
}
