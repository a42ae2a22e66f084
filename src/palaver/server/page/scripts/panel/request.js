/**
 * The view of the exact request that the chosen model would get now, with its tools and options, and
 * of what the others' formats would make of the conversation; with everything that is not in it as
 * it is in the history, and why. A note links to its place in the request.
 *
 * @typedef {import("../core/protocol.js").GetConversationsRequest} RequestShown
 * @typedef {RequestShown["notes"][number]} Repair
 */

import { api, Problem, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { coversThread, jump } from "../core/routes.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { attempt, notify } from "../shell/toast.js";
import { jsonTree, reveal } from "./json-tree.js";
import { messageText } from "./message-text.js";
import { PanelView } from "./panel-view.js";

const FORMATS = Object.freeze(["openai-chat", "openai-responses", "anthropic", "gemini"]);
const STORAGE_KEY = "palaver.format";

/** @extends {PanelView<RequestShown>} */
export class RequestView extends PanelView {
  constructor() {
    super();
    const stored = localStorage.getItem(STORAGE_KEY) ?? "";
    /** The format that the reader chose; that of the chosen model until then. */
    this.chosen = FORMATS.includes(stored) ? stored : "";
    /** The format that is shown. */
    this.format = this.chosen || FORMATS[0];
  }

  get depends() {
    return /** @type {(keyof import("../core/state.js").State)[]} */ (["model", "tools", "settings"]);
  }

  /** @param {AbortSignal} signal */
  async load(signal) {
    const path = url`conversations/${get().id}/request`;
    const { model, tools: usual, settings } = get();
    const tools = (settings?.tools ?? null) === null ? usual : null; // else the conversation's own
    const sent = await api.get(path, { query: { model, tools }, signal }).catch(this.#withoutModel);
    if (sent && (!this.chosen || this.chosen === sent.format)) return sent;
    return api.get(path, { query: { format: this.chosen || this.format }, signal });
  }

  /** A model that can't be asked has no request; the formats can be looked at all the same. @param {unknown} error */
  #withoutModel(error) {
    if (error instanceof Problem && error.status === 409) return null;
    throw error;
  }

  /** @param {RequestShown} data */
  render(data) {
    const { notes } = data;
    this.format = data.format;
    const spoken = new Set(notes.flatMap((note) => placesOf(data.request, named(note.what))));
    const tree = jsonTree(data.request, { marked: (path) => spoken.has(path) });
    const top = this.querySelector(".v-scroll")?.scrollTop ?? 0;
    const scroll = h(
      "div",
      { class: "v-scroll", id: "request-panel", role: "tabpanel", "aria-labelledby": `format-${this.format}`, tabindex: "0" },
      h("p", { class: "muted small r-to" }, data.model ? t("views.request.sent", { model: data.model }) : t("views.request.asFormat")),
      repairs(data, (note) => lead(note, data, tree)),
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
    this.chosen = this.format = format;
    localStorage.setItem(STORAGE_KEY, format);
    for (const tab of this.querySelectorAll(".r-tab")) {
      const chosen = tab.id === `format-${format}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.setAttribute("tabindex", chosen ? "0" : "-1");
    }
    this.reload();
  }

  /** @param {RequestShown} data */
  tools(data) {
    const copyText = async (/** @type {string} */ text) => {
      await navigator.clipboard.writeText(text);
      notify({ text: t("views.request.copied") });
    };
    return h(
      "div",
      { class: "r-tools" },
      h("span", { class: "muted small" }, t("views.request.tokens", { n: data.tokens })),
      h("span", { class: "grow" }),
      data.model && data.provider ? h("button", { type: "button", data: { focus: "curl" }, onclick: () => copyText(curl(data)) }, icon("copy"), t("views.request.curl")) : null,
      h("button", { type: "button", data: { focus: "copy" }, onclick: () => copyText(JSON.stringify(data.request, null, 2)) }, icon("copy"), t("views.request.copy")),
    );
  }
}

/** The addresses of the providers, and how a key is given. @type {Record<string, (model: string) => [string, ...string[]]>} */
const ENDPOINTS = {
  "openai-chat": () => ["https://api.openai.com/v1/chat/completions", "Authorization: Bearer $OPENAI_API_KEY"],
  "openai-responses": () => ["https://api.openai.com/v1/responses", "Authorization: Bearer $OPENAI_API_KEY"],
  anthropic: () => ["https://api.anthropic.com/v1/messages", "x-api-key: $ANTHROPIC_API_KEY", "anthropic-version: 2023-06-01"],
  gemini: (model) => [`https://generativelanguage.googleapis.com/v1beta/models/${model}:generateContent`, "x-goog-api-key: $GEMINI_API_KEY"],
};

/** The request as a command for a shell; the key is taken from the environment. @param {RequestShown} data */
function curl({ format, request, provider }) {
  const [where, ...headers] = ENDPOINTS[format](provider ?? "");
  const body = JSON.stringify(request).replaceAll("'", "'\\''");
  const given = ["content-type: application/json", ...headers].map((header) => `-H "${header}"`);
  return [`curl "${where}"`, ...given, `-d '${body}'`].join(" \\\n  ");
}

const ACTIONS = Object.freeze(/** @type {const} */ (["repaired", "left-out", "unsupported"]));
const LOOKS = { repaired: "warn", "left-out": "bad", unsupported: "" };

/**
 * @param {RequestShown} data
 * @param {(note: Repair) => void} lead
 */
function repairs({ notes, problems }, lead) {
  if (!notes.length) return h("p", { class: "r-whole" }, icon("check"), t("views.request.whole.says"));
  const counts = ACTIONS.map((action) => ({ action, n: notes.filter((note) => note.action === action).length })).filter(({ n }) => n);
  return h(
    "section",
    { class: "r-repairs" },
    h("h2", null, counts.map(({ action, n }) => h("span", { class: `chip ${LOOKS[action]}` }, t(`views.request.count.${action}`, { n })))),
    h("p", { class: "muted small" }, t(problems.some(({ action }) => action !== "unsupported") ? "views.request.repairsSay" : "views.request.othersSay")),
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
            h("span", { class: `chip ${LOOKS[note.action]}` }, t(`views.request.action.${note.action}`)),
            h("span", { class: "r-where" }, describePlace(note)),
            h("span", { class: "r-detail" }, note.what),
            h("span", { class: "r-why muted small" }, note.why),
          ),
        ),
      ),
    ),
  );
}

/** @param {Repair} note */
function describePlace({ path }) {
  const index = messageIndex(path);
  return index === null ? path : t("views.place", { index: String(index) });
}

/**
 * Go where a repair was made: to the message in the thread, and to its place in the request. What
 * was left out has no place there.
 *
 * @param {Repair} note
 * @param {RequestShown} data
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

/**
 * What a repair names: the ids and texts in quotes.
 *
 * @param {string} what
 * @returns {string[]}
 */
function named(what) {
  return Array.from(what.matchAll(/'([^']+)'/gu), (found) => found[1]);
}

/**
 * The index of the message in the history.
 *
 * @param {string} path  messages[6]
 * @returns {number | null}
 */
function messageIndex(path) {
  const found = /messages\[(\d+)\]/u.exec(path);
  return found ? Number(found[1]) : null;
}

/**
 * The entries of the request's list of messages that hold one of some strings, in order.
 *
 * @param {unknown} request
 * @param {string[]} wanted
 * @returns {string[]}  paths
 */
function placesOf(request, wanted) {
  const strings = new Set(wanted.filter(Boolean));
  /** @type {string[]} */
  const found = [];
  /** @param {unknown} value @param {string} path @param {string | null} entry */
  const walk = (value, path, entry) => {
    if (typeof value === "string") {
      if (entry && strings.has(value) && found.at(-1) !== entry) found.push(entry);
    } else if (Array.isArray(value)) {
      value.forEach((each, index) => walk(each, `${path}[${index}]`, entry ?? `${path}[${index}]`));
    } else if (value !== null && typeof value === "object") {
      for (const [name, each] of Object.entries(value)) walk(each, `${path}.${name}`, entry);
    }
  };
  if (strings.size) walk(request, "$", null);
  return found;
}

customElements.define("pv-request", RequestView);
