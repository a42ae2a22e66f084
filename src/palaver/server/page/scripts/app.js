/**
 * The page's root element. It loads the texts, signs in, reads what the server has, and builds the
 * sidebar, the thread and the panel; from then on each part follows the state and the server's
 * events.
 */

import "./panel/panel.js";
import "./panel/views.js";
import "./shell/guide.js";
import "./shell/header.js";
import "./shell/sidebar.js";
import "./shell/welcome.js";
import "./thread/composer.js";
import "./thread/draft.js";
import "./thread/failed-step.js";
import "./thread/find-bar.js";
import "./thread/message.js";
import "./thread/regenerate.js";
import "./thread/selection.js";
import "./thread/suggestions.js";
import "./thread/thread.js";
import { followAnnotations } from "./core/annotations.js";
import { api, onUnauthorised, Problem } from "./core/api.js";
import { fill, h, icon } from "./core/dom.js";
import { listen } from "./core/keyboard.js";
import { live } from "./core/live-events.js";
import { followConversation } from "./core/open-conversation.js";
import { registerAction } from "./core/registry.js";
import { watchAddress } from "./core/routes.js";
import { get, set, watch } from "./core/state.js";
import { followCalls } from "./core/tool-calls.js";
import { onLanguage, preferredLanguage, t, useLanguage } from "./locales/locale.js";
import { acceptDrops } from "./shell/import-files.js";
import { exchangeToken } from "./shell/login.js";
import { followOnboarding } from "./shell/onboarding.js";
import { bindShortcuts } from "./shell/shortcuts.js";
import { attempt, failed, notify } from "./shell/toast.js";
import { followAlternatives } from "./thread/alternatives.js";
import { isFormatted, toggleFormat } from "./thread/markdown.js";
import { textOf } from "./thread/message-actions.js";

/** A break of the connection shorter than this is not shown, in milliseconds. */
const BREAK = 1200;

registerAction("copy", {
  label: "copy",
  icon: "copy",
  keys: "y",
  writes: false,
  quick: true,
  run: ({ item }) =>
    attempt(async () => {
      await navigator.clipboard.writeText(textOf(item.message));
      notify({ text: t("copied") });
    }),
});

for (const formatted of [true, false]) {
  registerAction(formatted ? "source" : "format", {
    label: formatted ? "markdown.source" : "markdown.format",
    icon: formatted ? "request" : "file",
    keys: "v",
    writes: false,
    quick: formatted,
    when: ({ item }) => Boolean(textOf(item.message)) && isFormatted(item.message) === formatted,
    run: ({ item }) =>
      attempt(async () => {
        await toggleFormat(item.message);
        const rows = document.querySelectorAll("pv-message");
        rows.forEach((row) => row.item?.message.id === item.message.id && row.redraw());
      }),
  });
}

export class App extends HTMLElement {
  /** Whether the parts that follow the server have been started. */
  following = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  timer = undefined;

  async connectedCallback() {
    await useLanguage(preferredLanguage());
    listen();
    bindShortcuts();
    acceptDrops();
    onUnauthorised(() => this.#ask());
    live.on("status", () => this.#connection());
    this.addEventListener("pv-entered", () => this.#enter());
    watch(["id", "view"], () => this.#arrange());
    onLanguage(() => this.#connection());
    // the printed address may be opened where the page is already: then only the hash changes
    window.addEventListener("hashchange", async () => (await exchangeToken()) && this.#enter());
    await exchangeToken();
    await this.#enter();
  }

  /** Read what the server offers and build the page; show the login if the session is not accepted. */
  async #enter() {
    /** @type {import("./core/protocol.js").GetInfo} */
    let info;
    try {
      info = await api.get("info");
    } catch (error) {
      if (error instanceof Problem && error.status === 401) return;
      this.#away(error);
      return;
    }
    set({ info });
    this.#build();
    live.start(info.cursor);
    if (this.following) return;
    this.following = true;
    watchAddress();
    followOnboarding();
    followCalls();
    followAlternatives();
    followAnnotations();
    followConversation();
  }

  #build() {
    const main = h(
      "main",
      { class: "main" },
      h("div", { class: "offline notice", role: "status", hidden: true }, h("span", { class: "dot busy" }), h("span", { class: "words" })),
      document.createElement("pv-head"),
      document.createElement("pv-find"),
      document.createElement("pv-guide"),
      document.createElement("pv-welcome"),
      document.createElement("pv-thread"),
      document.createElement("pv-failed-step"),
      document.createElement("pv-suggestions"),
      document.createElement("pv-selection"),
      document.createElement("pv-composer"),
      h("p", { id: "spoken", class: "only-spoken", role: "status" }),
    );
    const veil = h("button", { type: "button", class: "veil", tabindex: -1, "aria-label": t("sidebar.close"), onclick: () => this.removeAttribute("data-drawer") });
    const skip = h("button", { type: "button", class: "skip", onclick: () => skipTo() }, t("skip"));
    fill(this, skip, document.createElement("pv-sidebar"), veil, main, document.createElement("pv-panel"));
    this.#arrange();
  }

  #arrange() {
    const { id, view } = get();
    this.toggleAttribute("data-open", id !== null);
    this.toggleAttribute("data-panel", id !== null && view !== null);
  }

  #ask() {
    live.stop();
    if (!this.querySelector("pv-login")) fill(this, document.createElement("pv-login"));
  }

  /** The server can't be reached: say so, and try again later. @param {unknown} error */
  #away(error) {
    if (!(error instanceof Problem && error.away)) failed(error);
    fill(this, h("main", { class: "login" }, h("div", { class: "empty" }, icon("alert"), h("p", null, t("failed.unreachable")))));
    setTimeout(() => this.#enter(), 2000);
  }

  #connection() {
    const bar = /** @type {HTMLElement | null} */ (this.querySelector(".offline"));
    if (!bar) return;
    const text = /** @type {HTMLElement} */ (bar.querySelector(".words"));
    text.textContent = t("offline");
    if (live.status === "open") {
      clearTimeout(this.timer);
      this.timer = undefined;
      bar.hidden = true;
    } else if (live.status === "lost") {
      this.timer ??= setTimeout(() => (bar.hidden = false), BREAK);
    }
  }
}

/** Go past the list of conversations: to the box, or to the thread where nothing can be written. */
function skipTo() {
  const box = /** @type {HTMLElement | null} */ (document.querySelector("pv-composer:not([hidden]) textarea"));
  (box ?? document.querySelector("pv-thread")?.scroller)?.focus();
}

customElements.define("pv-app", App);
