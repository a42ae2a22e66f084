/**
 * The panel beside the thread (over it on a small screen), with one tab for each registered view.
 * While it is closed, a rail in its place names the views; a small screen has no room for that.
 */

import { fill, h, icon } from "../core/dom.js";
import { bind } from "../core/keyboard.js";
import { viewNamed, views } from "../core/registry.js";
import { go } from "../core/routes.js";
import { get, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";
import { attempt } from "../shell/toast.js";

const STORAGE_KEY = "palaver.panel";
const NARROWEST = 320;
const STEP = 24;

export class Panel extends HTMLElement {
  /** @type {(() => void)[]} */
  subscriptions = [];
  /** @type {string | undefined} the tag of the view that is shown */
  shown = undefined;
  /** The panel's width, in pixels. */
  wide = NARROWEST;

  connectedCallback() {
    this.setAttribute("role", "complementary");
    this.subscriptions = [
      watch(["view", "id"], () => this.#draw()),
      onLanguage(() => this.#draw(true)),
      ...views().filter(({ keys }) => keys).map((view) => bind({
        keys: /** @type {string} */ (view.keys),
        label: view.label,
        group: "keys.panel",
        when: () => get().id !== null,
        run: () => go({ view: get().view === view.name ? null : view.name }),
      })),
    ];
    this.#widen(Number(localStorage.getItem(STORAGE_KEY)) || 440);
    this.#draw();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
  }

  /** @param {boolean} [again] */
  #draw(again = false) {
    const { id, view: name } = get();
    const view = id && name ? viewNamed(name) : undefined;
    this.hidden = !id;
    this.toggleAttribute("data-rail", !view);
    if (!view) {
      fill(this, id ? rail() : null);
      this.shown = undefined;
      return;
    }
    if (this.shown === view.element && !again) {
      return; // it reads the state itself
    }
    this.shown = view.element;
    attempt(view.load); // until it is there its element is empty: defining it brings it to life
    this.setAttribute("aria-label", t("panel.tabs"));
    fill(
      this,
      this.#edge(),
      h("div", { class: "panel-head" }, this.#tabs(view.name), h("button", { type: "button", class: "quiet", "aria-label": t("panel.close"), title: t("panel.close"), onclick: () => go({ view: null }) }, icon("x"))),
      h("div", { class: "panel-body", id: "panel-body", role: "tabpanel", tabindex: 0, "aria-label": t(view.label) }, document.createElement(view.element)),
    );
  }

  /** @param {string} chosen */
  #tabs(chosen) {
    const shown = views().filter(({ hidden, name }) => !hidden || name === chosen);
    const tabs = shown.map((view) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          class: "tab",
          "aria-selected": String(view.name === chosen),
          "aria-controls": view.name === chosen ? "panel-body" : null,
          tabindex: view.name === chosen ? 0 : -1,
          onclick: () => go({ view: view.name }),
        },
        t(view.label),
      ),
    );
    const move = (/** @type {KeyboardEvent} */ event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const at = shown.findIndex(({ name }) => name === chosen);
      go({ view: shown[(at + by + shown.length) % shown.length].name });
      /** @type {HTMLElement | null} */ (this.querySelector("[role=tab][aria-selected=true]"))?.focus();
    };
    return h("div", { class: "tabs", role: "tablist", "aria-label": t("panel.tabs"), onkeydown: move }, ...tabs);
  }

  /** The edge that can be dragged, or moved with the arrows. */
  #edge() {
    const drag = (/** @type {PointerEvent} */ event) => {
      const edge = /** @type {HTMLElement} */ (event.currentTarget);
      edge.setPointerCapture(event.pointerId);
      edge.onpointermove = (moved) => this.#widen(innerWidth - moved.clientX);
      edge.onpointerup = () => (edge.onpointermove = null);
    };
    const key = (/** @type {KeyboardEvent} */ event) => {
      const by = { ArrowLeft: STEP, ArrowRight: -STEP }[event.key];
      if (!by) return;
      event.preventDefault();
      this.#widen(this.offsetWidth + by);
    };
    return h("div", { class: "edge", role: "separator", tabindex: 0, "aria-orientation": "vertical", "aria-label": t("panel.resize"), "aria-valuenow": Math.round(this.wide), "aria-valuemin": NARROWEST, "aria-valuemax": 1200, onpointerdown: drag, onkeydown: key });
  }

  /** @param {number} width */
  #widen(width) {
    this.wide = Math.max(NARROWEST, Math.min(width, innerWidth * 0.6, 1200));
    localStorage.setItem(STORAGE_KEY, String(Math.round(this.wide)));
    this.style.setProperty("--panel", `${this.wide}px`);
    this.querySelector(".edge")?.setAttribute("aria-valuenow", String(Math.round(this.wide)));
  }
}

/** The views by name, to open one. */
function rail() {
  const entries = views().filter(({ hidden }) => !hidden).map(({ name, label, icon: picture, keys }) =>
    h(
      "button",
      { type: "button", class: "rail-view", title: keys ? `${t(label)} (${keys})` : t(label), onclick: () => go({ view: name }) },
      picture ? icon(picture) : null,
      h("span", null, t(label)),
    ),
  );
  return h("nav", { class: "rail", "aria-label": t("panel.tabs") }, entries);
}

customElements.define("pv-panel", Panel);
