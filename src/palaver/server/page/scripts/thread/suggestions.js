/**
 * Suggested questions for an empty conversation; a click asks one. A question that needs a tool
 * makes the model call it, so that even a small model does. Only suggestions that can work now are
 * shown. In the conversation of the guide a tool is suggested until one was used.
 *
 * @typedef {object} Suggestion
 * @property {string} question  the key of its text
 * @property {string} [tool]    the tool that is called
 * @property {boolean} [later]  whether it goes well after other messages too: nothing has to be filled in
 */

import { api, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { redraw } from "../core/redraw.js";
import { canWrite, chosenModel, get, isSmall, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";
import { isDone, isWanted, onOnboarding, START } from "../shell/onboarding.js";

/** @type {readonly Suggestion[]} */
const SUGGESTIONS = Object.freeze([
  { question: "suggest.plain" },
  { question: "suggest.sum", tool: "calculate" },
  { question: "suggest.dice", tool: "roll_dice", later: true },
]);
/** How many messages may stand before the first question: system messages only. */
const YOUNG = 3;

export class Suggestions extends HTMLElement {
  /** @type {(() => void)[]} */
  subscriptions = [];
  turn = 0;
  /** Whether nothing but system messages is in the conversation. */
  young = false;
  /** @type {number | undefined} of how many messages that is known */
  length = undefined;

  connectedCallback() {
    this.setAttribute("role", "group");
    this.hidden = true;
    const draw = () => redraw(this, () => this.#draw());
    this.subscriptions = [
      watch(["head"], () => this.#look()),
      watch(["stepping", "viewing", "info", "model", "settings"], draw),
      onOnboarding(draw),
      onLanguage(draw),
    ];
    this.#look();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
  }

  /** Find out whether the conversation holds system messages only. */
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
    const known = new Set((get().info?.tools ?? []).map((tool) => tool.name));
    const learning = get().id === START && isWanted() && !isDone("call");
    const offered = SUGGESTIONS.filter(({ tool, later }) => (!tool || (known.has(tool) && isAllowed(tool))) && (this.young || later));
    const may = canWrite() && get().viewing === null && !get().stepping && model?.ready;
    this.hidden = !(may && (this.young || learning) && offered.length);
    if (this.hidden) {
      fill(this);
      return;
    }
    const label = t(isSmall(model) ? "suggest.label.small" : "suggest.label");
    this.setAttribute("aria-label", t("suggest.label"));
    fill(
      this,
      h("p", { class: "muted small" }, label),
      h("div", { class: "suggested" }, offered.map(({ question, tool }) => h("button", { type: "button", onclick: () => ask(question, tool) }, tool ? icon("tool") : null, t(question)))),
    );
  }
}

/**
 * @param {string | null} id
 * @param {import("../core/api.js").Head} head
 */
async function onlySystem(id, head) {
  if (!head.length) return true;
  const query = { version: head.version, start: 0, stop: YOUNG };
  /** @type {import("../core/protocol.js").GetConversationsMessages | null} */
  const found = await api.get(url`conversations/${id}/messages`, { query }).catch(() => null);
  return found !== null && found.items.every(({ message }) => message.role === "system");
}

/** Whether the conversation leaves a tool on; the page's own switch does not count. @param {string} tool */
function isAllowed(tool) {
  const allowed = get().settings?.tools ?? true;
  return typeof allowed === "boolean" ? allowed : allowed.includes(tool);
}

/**
 * Ask one of the suggested questions.
 *
 * @param {string} question
 * @param {string} [tool]
 */
export function ask(question, tool) {
  const how = tool ? { tools: [tool], options: { tool_choice: tool } } : { tools: false };
  // the button goes: the keyboard moves on to the box, a finger wants no keyboard
  if (document.activeElement?.matches(":focus-visible")) document.getElementById("say")?.focus();
  document.querySelector("pv-composer")?.say(t(question), how);
}

customElements.define("pv-suggestions", Suggestions);
