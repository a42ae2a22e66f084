/**
 * The page. It learns its words, shows the server who it is, asks what there is, and puts the
 * parts in their places; from then on they follow the state and the server's events.
 */

import "./panels.js";
import "./pv-composer.js";
import "./pv-draft.js";
import "./pv-guide.js";
import "./pv-head.js";
import "./pv-login.js";
import "./pv-message.js";
import "./pv-panel.js";
import "./pv-selection.js";
import "./pv-sidebar.js";
import "./pv-suggestions.js";
import "./pv-thread.js";
import "./pv-welcome.js";
import { api, onUnauthorised, Problem } from "./api.js";
import { followCalls } from "./calls.js";
import { followConversation } from "./conversation.js";
import { fill, h, icon } from "./dom.js";
import { takeDrops } from "./importing.js";
import { listen } from "./keys.js";
import { live } from "./live.js";
import { textOf } from "./message-actions.js";
import { followMinute } from "./minute.js";
import { takeToken } from "./pv-login.js";
import { attempt, failed, notify } from "./pv-toast.js";
import { watchAddress } from "./routes.js";
import { bindShortcuts } from "./shortcuts.js";
import { get, set, watch } from "./state.js";
import { registerAction } from "./views.js";
import { onLanguage, preferredLanguage, speak, t } from "./words.js";

/** A short break is not worth a word. */
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

class App extends HTMLElement {
  async connectedCallback() {
    await speak(preferredLanguage());
    listen();
    bindShortcuts();
    takeDrops();
    onUnauthorised(() => this.#ask());
    live.on("status", () => this.#connection());
    this.addEventListener("pv-entered", () => this.#enter());
    watch(["id", "view"], () => this.#arrange());
    onLanguage(() => this.#connection());
    // the printed address may be opened where the page is already: then only the hash changes
    window.addEventListener("hashchange", async () => (await takeToken()) && this.#enter());
    await takeToken();
    await this.#enter();
  }

  /** Ask the server what there is; where it does not know us, ask for the token. */
  async #enter() {
    try {
      set({ info: await api.get("info") });
    } catch (error) {
      if (error instanceof Problem && error.status === 401) return;
      this.#away(error);
      return;
    }
    this.#build();
    live.start(get().info.cursor);
    if (this.following) return;
    this.following = true;
    watchAddress();
    followMinute();
    followCalls();
    followConversation();
  }

  #build() {
    const main = h(
      "main",
      { class: "main" },
      h("div", { class: "offline notice", role: "status", hidden: true }, h("span", { class: "dot busy" }), h("span", { class: "words" })),
      document.createElement("pv-head"),
      document.createElement("pv-guide"),
      document.createElement("pv-welcome"),
      document.createElement("pv-thread"),
      document.createElement("pv-suggestions"),
      document.createElement("pv-selection"),
      document.createElement("pv-composer"),
    );
    const veil = h("button", { type: "button", class: "veil", tabindex: -1, "aria-label": t("sidebar.close"), onclick: () => this.removeAttribute("data-drawer") });
    fill(this, document.createElement("pv-sidebar"), veil, main, document.createElement("pv-panel"));
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

  /** The server is not there: say so, and try again. @param {unknown} error */
  #away(error) {
    if (!(error instanceof Problem && error.away)) failed(error);
    fill(this, h("main", { class: "login" }, h("div", { class: "empty" }, icon("alert"), h("p", null, t("failed.unreachable")))));
    setTimeout(() => this.#enter(), 2000);
  }

  #connection() {
    const bar = /** @type {HTMLElement | null} */ (this.querySelector(".offline"));
    if (!bar) return;
    const words = /** @type {HTMLElement} */ (bar.querySelector(".words"));
    words.textContent = t("offline");
    if (live.status === "open") {
      clearTimeout(this.timer);
      this.timer = undefined;
      bar.hidden = true;
    } else if (live.status === "lost") {
      this.timer ??= setTimeout(() => (bar.hidden = false), BREAK);
    }
  }
}

customElements.define("pv-app", App);
