/**
 * The exact request that a provider would get now, in each of the four formats, with what had to be
 * repaired on the way and why; a repair leads to its place in the request.
 */

import { api, url } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { attempt, notify } from "../pv-toast.js";
import { get } from "../state.js";
import { t } from "../words.js";
import { jsonTree, reveal } from "./json_tree.js";
import { coversThread, jump } from "./jumping.js";
import { messageText } from "./message_text.js";
import { Pane } from "./pane.js";
import { messageIndex, named, placesOf } from "./request_places.js";

const FORMATS = Object.freeze(["openai-chat", "openai-responses", "anthropic", "gemini"]);
const KEPT = "palaver.format";

/** @extends {Pane<any>} */
class Request extends Pane {
  constructor() {
    super();
    const kept = localStorage.getItem(KEPT) ?? "";
    this.format = FORMATS.includes(kept) ? kept : FORMATS[0];
  }

  /** @param {AbortSignal} signal */
  async load(signal) {
    const query = { format: this.format };
    return api.get(url`conversations/${get().id}/request`, { query, signal });
  }

  /** @param {any} data */
  render(data) {
    const { notes } = data;
    const spoken = new Set(notes.flatMap((/** @type {any} */ note) => placesOf(data.request, named(note.what))));
    const tree = jsonTree(data.request, { marked: (path) => spoken.has(path) });
    const top = this.querySelector(".v-scroll")?.scrollTop ?? 0;
    const scroll = h(
      "div",
      { class: "v-scroll", id: "request-panel", role: "tabpanel", "aria-labelledby": `format-${this.format}`, tabindex: "0" },
      repairs(notes, (note) => lead(note, data, tree)),
      this.tools(data),
      tree,
    );
    fill(this, this.tabs(), scroll);
    scroll.scrollTop = top;
  }

  /** @param {unknown} error */
  failed(error) {
    super.failed(error);
    this.prepend(this.tabs());
  }

  tabs() {
    return h(
      "div",
      { class: "r-tabs", role: "tablist", "aria-label": t("views.request.formats"), onkeydown: (/** @type {KeyboardEvent} */ event) => this.moved(event) },
      FORMATS.map((format) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            id: `format-${format}`,
            class: "r-tab",
            "aria-selected": String(format === this.format),
            "aria-controls": "request-panel",
            tabindex: format === this.format ? "0" : "-1",
            data: { focus: `format-${format}` },
            onclick: () => this.choose(format),
          },
          t(`views.format.${format}`),
        ),
      ),
    );
  }

  /** @param {KeyboardEvent} event */
  moved(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = FORMATS[(FORMATS.indexOf(this.format) + step + FORMATS.length) % FORMATS.length];
    this.choose(next);
    const tab = this.querySelector(`#format-${next}`);
    if (tab instanceof HTMLElement) tab.focus();
  }

  /** @param {string} format */
  choose(format) {
    this.format = format;
    localStorage.setItem(KEPT, format);
    for (const tab of this.querySelectorAll(".r-tab")) {
      const chosen = tab.id === `format-${format}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.setAttribute("tabindex", chosen ? "0" : "-1");
    }
    this.reload();
  }

  /** @param {any} data */
  tools(data) {
    const copy = async () => {
      await navigator.clipboard.writeText(JSON.stringify(data.request, null, 2));
      notify({ text: t("views.request.copied") });
    };
    return h(
      "div",
      { class: "r-tools" },
      h("span", { class: "muted small" }, t("views.request.tokens", { n: data.tokens })),
      h("span", { class: "grow" }),
      h("button", { type: "button", data: { focus: "copy" }, onclick: copy }, icon("copy"), t("views.request.copy")),
    );
  }
}

/**
 * @param {any[]} notes
 * @param {(note: any) => void} lead
 */
function repairs(notes, lead) {
  if (!notes.length) return h("p", { class: "r-whole" }, icon("check"), t("views.request.whole.says"));
  const lost = notes.filter(({ action }) => action === "lost").length;
  return h(
    "section",
    { class: "r-repairs" },
    h("h2", null, t("views.request.repairs", { n: notes.length }), lost ? h("span", { class: "chip bad" }, t("views.request.lost", { n: lost })) : null),
    h("p", { class: "muted small" }, t("views.request.repairsSay")),
    h(
      "ol",
      { class: "r-notes" },
      notes.map((note, index) =>
        h(
          "li",
          null,
          h(
            "button",
            { type: "button", class: "r-note", data: { focus: `note-${index}` }, onclick: () => lead(note) },
            h("span", { class: `chip ${note.action === "lost" ? "bad" : "warn"}` }, t(`views.request.action.${note.action}`)),
            h("span", { class: "r-where" }, placeSaid(note)),
            h("span", { class: "r-detail" }, note.what),
            h("span", { class: "r-why muted small" }, note.why),
          ),
        ),
      ),
    ),
  );
}

/** @param {any} note */
function placeSaid({ path }) {
  const index = messageIndex(path);
  return index === null ? path : t("views.place", { index: String(index) });
}

/**
 * Go where a repair was made: to the message in the thread, and to its place in the request. What
 * was left out has no place there.
 *
 * @param {any} note
 * @param {any} data
 * @param {HTMLElement} tree
 */
async function lead(note, data, tree) {
  const index = messageIndex(note.path);
  if (index !== null && !coversThread()) jump(index);
  let places = placesOf(data.request, named(note.what));
  if (!places.length && index !== null) {
    const query = { version: data.version, start: index, stop: index + 1 };
    const found = await attempt(() => api.get(url`conversations/${get().id}/messages`, { query }));
    places = placesOf(data.request, (found?.items ?? []).map((/** @type {any} */ item) => messageText(item.message)));
  }
  const last = places.at(-1);
  if (last) {
    show(tree, last);
    return;
  }
  notify({ text: t("views.request.leftOut") });
  if (index !== null) jump(index);
}

/**
 * @param {HTMLElement} tree
 * @param {string} where
 */
function show(tree, where) {
  const line = reveal(tree, where);
  if (!line) return;
  for (const each of tree.querySelectorAll(".j-here")) each.classList.remove("j-here");
  line.classList.add("j-here");
  line.setAttribute("tabindex", "-1");
  line.scrollIntoView({ block: "center" });
  line.focus({ preventScroll: true });
}

customElements.define("pv-request", Request);
