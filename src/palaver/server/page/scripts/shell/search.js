/**
 * Search as you type: titles among the loaded conversations, messages on the server. Only the
 * response to the last query is used.
 *
 * @typedef {import("../core/protocol.js").GetSearch["items"][number]} Hit
 */

import { api } from "../core/api.js";
import { h, icon } from "../core/dom.js";
import { go, revealMessage } from "../core/routes.js";
import { t } from "../locales/locale.js";
import { visible } from "../thread/text.js";
import { failed } from "./toast.js";

const PAUSE = 180;
const MOST = 30;

export class Search {
  /** @param {() => void} changed */
  constructor(changed) {
    this.changed = changed;
    this.text = "";
    /** @type {Hit[]} */
    this.found = [];
    this.timer = 0;
    /** @type {AbortController | undefined} */
    this.asking = undefined;
  }

  /** @param {string} text */
  type(text) {
    this.text = text.trim();
    this.found = [];
    clearTimeout(this.timer);
    this.asking?.abort();
    if (this.text) this.timer = setTimeout(() => this.#ask(), PAUSE);
    this.changed();
  }

  /**
   * Whether a conversation's title, tags or id contains the searched text.
   *
   * @param {import("../core/api.js").Head} head
   */
  fits({ title, name, tags, id }) {
    const wanted = this.text.toLowerCase();
    return !wanted || [title ?? name ?? "", id, ...tags].some((text) => text.toLowerCase().includes(wanted));
  }

  /**
   * A row for a message that was found.
   *
   * @param {Hit} hit
   * @returns {HTMLElement}
   */
  row(hit) {
    const open = () => {
      go({ id: hit.conversation, at: hit.seenIn });
      document.querySelector("pv-app")?.removeAttribute("data-drawer");
      const index = hit.index ?? hit.seenAt;
      if (typeof index === "number") revealMessage(index);
    };
    return h(
      "li",
      { class: "conversation hit" },
      h(
        "button",
        { type: "button", class: "plain", onclick: open },
        h("span", { class: "row" }, icon("search"), h("span", { class: "name clip grow" }, visible(hit.title || t("conversation.untitled"))), this.#where(hit)),
        h("span", { class: "snippet muted tiny" }, this.#marked(hit.snippet)),
      ),
    );
  }

  /** What is no longer in the conversation says where it is. @param {Hit} hit */
  #where({ index, seenIn, status }) {
    if (status !== "active") return h("span", { class: "chip" }, t(`sidebar.${status}`));
    if (typeof seenIn === "number") return h("span", { class: "chip warn" }, t("sidebar.hit.version", { n: seenIn }));
    return index === null ? h("span", { class: "chip" }, t("sidebar.hit.gone")) : null;
  }

  /** The snippet with the searched words marked. @param {string} snippet */
  #marked(snippet) {
    const words = this.text.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const pieces = snippet.split(new RegExp(`(${words.join("|")})`, "gi"));
    return pieces.map((piece, at) => (at % 2 ? h("mark", null, visible(piece)) : visible(piece)));
  }

  async #ask() {
    this.asking = new AbortController();
    try {
      const query = { q: this.text, limit: MOST };
      const answer = await api.get("search", { query, signal: this.asking.signal });
      this.found = answer.items;
      this.changed();
    } catch (error) {
      failed(error, t("sidebar.failed"));
    }
  }
}
