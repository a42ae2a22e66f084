/**
 * What one might ask, where nothing was asked yet: a click asks it. A question that wants a tool
 * has the model call that tool, so that even a very small one does. Only what can work here and now
 * is offered. Where the guide through the first minute begins, a tool is offered until one was used.
 *
 * @typedef {object} Suggestion
 * @property {string} words     the key of what is asked
 * @property {string} [tool]    the tool that is called
 * @property {boolean} [later]  whether it goes well after other words too: nothing has to be filled in
 */

import { api, url } from "./api.js";
import { chosenModel } from "./choosing-model.js";
import { fill, h, icon } from "./dom.js";
import { isDone, isWanted, onMinute, START } from "./minute.js";
import { redraw } from "./redrawing.js";
import { canWrite, get, watch } from "./state.js";
import { onLanguage, t } from "./words.js";

/** @type {readonly Suggestion[]} */
const SUGGESTIONS = Object.freeze([
  { words: "suggest.plain" },
  { words: "suggest.sum", tool: "calculate" },
  { words: "suggest.dice", tool: "roll_dice", later: true },
]);
/** How many messages may stand before the first question: what a system is told, and no more. */
const YOUNG = 3;

class Suggestions extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "group");
    this.hidden = true;
    this.turn = 0;
    /** Whether nothing but system messages is in the conversation. */
    this.young = false;
    /** @type {number | undefined} of how many messages that is known */
    this.length = undefined;
    const draw = () => redraw(this, () => this.#draw());
    this.quiet = [
      watch(["head"], () => this.#look()),
      watch(["stepping", "viewing", "info", "model"], draw),
      onMinute(draw),
      onLanguage(draw),
    ];
    this.#look();
  }

  disconnectedCallback() {
    this.quiet?.forEach((stop) => stop());
  }

  /** Learn whether anything was said yet. */
  async #look() {
    const { id, head } = get();
    const turn = ++this.turn;
    // what was said since may be a question: offer nothing more until that is known
    if (head?.length !== this.length) this.young = false;
    this.length = head?.length;
    const young = head !== null && head.length <= YOUNG && (await onlySystem(id, head));
    if (turn !== this.turn) return;
    this.young = young;
    redraw(this, () => this.#draw());
  }

  #draw() {
    const model = chosenModel();
    const known = new Set((get().info?.tools ?? []).map((/** @type {any} */ tool) => tool.name));
    const learning = get().id === START && isWanted() && !isDone("call");
    const offered = SUGGESTIONS.filter(({ tool, later }) => (!tool || known.has(tool)) && (this.young || later));
    const may = canWrite() && get().viewing === null && !get().stepping && model?.ready;
    this.hidden = !(may && (this.young || learning) && offered.length);
    if (this.hidden) {
      fill(this);
      return;
    }
    const label = t(model.name.startsWith("local:") ? "suggest.label.small" : "suggest.label");
    this.setAttribute("aria-label", t("suggest.label"));
    fill(
      this,
      h("p", { class: "muted small" }, label),
      h("div", { class: "suggested" }, offered.map(({ words, tool }) => h("button", { type: "button", onclick: () => ask(words, tool) }, tool ? icon("tool") : null, t(words)))),
    );
  }
}

/**
 * @param {string | null} id
 * @param {import("./api.js").Head} head
 */
async function onlySystem(id, head) {
  if (!head.length) return true;
  const query = { version: head.version, start: 0, stop: YOUNG };
  const found = await api.get(url`conversations/${id}/messages`, { query }).catch(() => null);
  return found !== null && found.items.every((/** @type {any} */ { message }) => message.role === "system");
}

/**
 * @param {string} words
 * @param {string | undefined} tool
 */
function ask(words, tool) {
  const how = tool ? { tools: [tool], options: { tool_choice: tool } } : { tools: false };
  // the button goes: the keyboard moves on to the box, a finger wants no keyboard
  if (document.activeElement?.matches(":focus-visible")) document.getElementById("say")?.focus();
  /** @type {any} */ (document.querySelector("pv-composer"))?.say(t(words), how);
}

customElements.define("pv-suggestions", Suggestions);
