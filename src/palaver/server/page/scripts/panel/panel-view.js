/**
 * The base class of the panel's views. A view loads data about the open conversation, reloads it
 * after events, shows when there is nothing or when loading failed, and keeps the focus when it is
 * drawn again.
 */

import { fill, h } from "../core/dom.js";
import { live } from "../core/live-events.js";
import { redraw } from "../core/redraw.js";
import { get, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";

const SOON = 120;
const PATIENCE = 250;

/** Events that change nothing that a view shows. */
const NOISE = new Set(["step.delta", "tool.progress"]);

/**
 * @template D
 */
export class PanelView extends HTMLElement {
  constructor() {
    super();
    /** @type {D | null} */
    this.data = null;
    /** The data that the current drawing was made from. */
    this.drawn = "";
    /** Whether the drawing is still that of the conversation before. */
    this.stale = false;
    this.addEventListener("click", (event) => this.#ignoreStale(event), { capture: true });
    /** @type {(() => void)[]} */
    this.stops = [];
    this.timer = 0;
    /** @type {AbortController | null} */
    this.asking = null;
  }

  /** The keys of the state that a view depends on, beside the conversation. */
  get depends() {
    return /** @type {(keyof import("../core/state.js").State)[]} */ ([]);
  }

  connectedCallback() {
    this.classList.add("pane");
    this.stops = [
      watch(["id"], () => this.begin()),
      watch(this.depends, () => this.soon()),
      onLanguage(() => this.begin()),
      live.on("*", ({ conversation }, name) => {
        if (NOISE.has(name) || conversation === undefined || conversation !== get().id) return;
        this.soon();
      }),
      live.on("resumed", () => this.soon()),
    ];
    this.begin();
  }

  disconnectedCallback() {
    this.stops.forEach((stop) => stop());
    clearTimeout(this.timer);
    this.asking?.abort();
  }

  /** Start again, for another conversation or another language. */
  begin() {
    this.data = null;
    this.drawn = "";
    this.stale = get().id !== null;
    if (get().id === null) {
      this.asking?.abort();
      fill(this, empty(t("views.none.title"), t("views.none.hint")));
      return;
    }
    const waiting = setTimeout(() => {
      if (this.data === null) fill(this, skeleton());
    }, PATIENCE);
    this.reload().finally(() => clearTimeout(waiting));
  }

  /** A button about the conversation before does nothing to this one. @param {Event} event */
  #ignoreStale(event) {
    if (!this.stale) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Reload in a moment, once for a burst of events. */
  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.reload(), SOON);
  }

  async reload() {
    if (get().id === null) return;
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    try {
      const data = await this.load(asking.signal);
      if (asking.signal.aborted || !this.isConnected) return;
      this.data = data;
      this.drawChanged();
    } catch (error) {
      if (asking.signal.aborted || !this.isConnected) return;
      this.failed(error);
    }
  }

  /** Draw the data, and keep the focus. */
  draw() {
    redraw(this, () => {
      if (this.data === null) return;
      this.drawn = this.looks();
      this.stale = false;
      this.render(this.data);
    });
  }

  /** Draw if something changed; otherwise leave the elements, with their open folds, as they are. */
  drawChanged() {
    if (this.looks() !== this.drawn) this.draw();
  }

  /** Everything that the drawing depends on. */
  looks() {
    const state = get();
    return JSON.stringify([this.data, ...this.depends.map((key) => state[key])]);
  }

  /**
   * @param {AbortSignal} _signal
   * @returns {Promise<D>}
   */
  async load(_signal) {
    throw new Error("a view says what it loads");
  }

  /** @param {D} _data */
  render(_data) {}

  /** @param {unknown} error */
  failed(error) {
    this.drawn = "";
    this.stale = false;
    fill(this, failure(error, () => this.begin()));
  }
}

/**
 * A placeholder: nothing is here, and what to do about it.
 *
 * @param {string} title
 * @param {string} hint
 * @param {...import("../core/dom.js").Child} more
 */
export function empty(title, hint, ...more) {
  return h("div", { class: "v-empty" }, h("p", { class: "v-empty-title" }, title), h("p", null, hint), more);
}

/** A placeholder while the view is loading. */
function skeleton() {
  return h(
    "div",
    { class: "v-skeleton", role: "status", "aria-label": t("views.loading") },
    [70, 90, 50, 80].map((width) => h("span", { vars: { "--width": `${width}%` } })),
  );
}

/**
 * What went wrong, with a button that tries again.
 *
 * @param {any} error
 * @param {() => void} [again]
 */
export function failure(error, again) {
  const away = error?.away === true;
  return h(
    "div",
    { class: "v-trouble", role: "alert" },
    h("p", { class: "v-empty-title" }, t(away ? "views.away.title" : "views.failed.title")),
    h("p", null, away ? t("views.away.hint") : errorText(error)),
    again && h("button", { type: "button", class: "button", onclick: again }, t("views.again")),
  );
}

/**
 * An error in one sentence, with the path that it is about.
 *
 * @param {any} error
 * @returns {string}
 */
export function errorText(error) {
  if (error?.away) return t("views.away.hint");
  const place = error?.body?.path;
  const text = error?.message ?? String(error);
  return place && place !== "$" && !text.includes(place) ? `${place}: ${text}` : text;
}
