/**
 * The answers of the running step, as far as they have arrived. Each stays until its message is
 * drawn in the thread. Deltas arrive by a faster way than the news that a message was stored, so
 * the next answer may begin before the last one is drawn.
 *
 * @typedef {object} Piece
 * @property {"text" | "reasoning" | "call"} kind
 * @property {string} text
 * @property {number} [start]   where it begins in the text of its kind
 * @property {string} [name]    the tool that is called, or the member of a team that speaks
 * @property {string} [callID]
 * @property {HTMLElement} [element]   as it was drawn last; gone when there is more
 */

import { fill, h, icon } from "../core/dom.js";
import { t } from "../locales/locale.js";
import { reasoning } from "./message-parts.js";
import { prose } from "./text.js";

/** How long the empty frame stays hidden after an answer was stored, in milliseconds. */
const REST = 700;

export class Draft extends HTMLElement {
  caret = h("span", { class: "caret" });
  /** The place of the line on tokens and costs that the stored answer ends with. */
  foot = h("p", { class: "step-cost muted tiny", "aria-hidden": "true" }, "\u00a0");
  /** @type {Piece[][]} what has arrived of each answer that is not drawn as a message yet */
  answers = [];
  /** Whether the step runs. */
  running = false;
  /** Whether the empty frame is hidden for a moment, because an answer has just been stored. */
  resting = false;
  /** Whether nothing is shown yet, because the question is not drawn. */
  held = false;
  model = "";
  speaker = "";
  frame = 0;
  timer = 0;

  connectedCallback() {
    this.classList.add("message", "draft");
    this.setAttribute("aria-live", "off");
    this.dataset.role = "assistant";
    this.hidden = true;
  }

  /**
   * A step has begun. Nothing of it is shown before `show`: the question has to be there first.
   *
   * @param {Pick<import("../core/protocol.js").GetConversationsStep, "model" | "draft">} step
   */
  begin({ model, draft }) {
    this.running = true;
    this.resting = false;
    this.held = true;
    this.model = model ?? "";
    this.speaker = "";
    this.answers = [];
    /** @type {Piece[]} */
    const pieces = (draft?.calls ?? []).map(({ text, tool, callID }) => ({ kind: "call", text, name: tool, callID }));
    if (draft?.text) pieces.unshift({ kind: "text", text: draft.text });
    if (draft?.reasoning) pieces.unshift({ kind: "reasoning", text: draft.reasoning });
    if (pieces.length) this.answers.push(pieces);
    this.#soon();
  }

  /**
   * Add a piece. A piece says where it begins in its text, so that a repeated one changes nothing.
   *
   * @param {Piece} delta
   */
  add({ kind, text, start = 0, name, callID }) {
    const same = (/** @type {Piece} */ one) => one.kind === kind && one.callID === callID;
    const answer = this.answers.at(-1);
    const before = answer?.find(same);
    const anew = start === 0 && (before?.text || (kind !== "call" && answer?.some((one) => one.kind === "call")));
    if (!answer || anew) {
      this.answers.push([{ kind, text, name, callID }]);
    } else if (before) {
      before.text = before.text.slice(0, start) + text;
      before.element = undefined;
    } else {
      answer.push({ kind, text, name, callID });
    }
    this.running = true;
    this.#soon();
  }

  /** The question is on the screen: show the answer below it. */
  show() {
    this.held = false;
    this.#soon();
  }

  /** A member of a team takes its turn. @param {string} name */
  turn(name) {
    this.speaker = name;
    fill(this);
    this.#soon();
  }

  /**
   * Some answers are on the screen as messages: the first ones here go. Where nothing is left, most
   * often nothing more comes, so the frame goes too and is back after a while if the step goes on.
   *
   * @param {number} stored  how many
   */
  release(stored) {
    if (!stored || !this.answers.length) return;
    this.answers = this.answers.slice(stored);
    this.resting = !this.answers.length;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.resting = false;
      this.#draw();
    }, REST);
    this.#draw();
  }

  /** The step has ended; what arrived stays visible until `end`. */
  stopped() {
    this.running = false;
    this.#soon();
  }

  /** Remove the draft. */
  end() {
    this.running = false;
    this.held = false;
    this.answers = [];
    this.#draw();
  }

  #soon() {
    this.frame ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const was = this.hidden;
    this.hidden = this.held || (!this.answers.length && (!this.running || this.resting));
    if (this.hidden) fill(this);
    else if (was || !this.firstElementChild) this.#frame();
    const body = this.querySelector(".message-body");
    const shown = this.answers.flat().map((piece) => (piece.element ??= this.#piece(piece)));
    if (body) fill(body, ...shown, shown.length ? this.foot : null);
    const last = shown.at(-1);
    if (!this.running) this.caret.remove();
    else if (last?.matches(".prose")) (last.querySelector(":scope > .text:last-child") ?? last).append(this.caret);
    else if (shown.length) this.foot.before(this.caret);
    else body?.append(this.caret);
    this.dispatchEvent(new CustomEvent("pv-drawn", { bubbles: true }));
  }

  #frame() {
    fill(
      this,
      h(
        "header",
        { class: "message-head" },
        h("span", { class: "who" }, this.speaker || t("role.assistant")),
        this.model ? h("span", { class: "muted tiny clip" }, this.model) : null,
        h("span", { class: "chip accent" }, h("span", { class: "dot busy" }), t("draft.writing")),
      ),
      h("div", { class: "message-body" }),
    );
  }

  /** @param {Piece} piece */
  #piece(piece) {
    if (piece.kind === "text") return prose(piece.text, { whole: true });
    if (piece.kind === "reasoning") return reasoning(piece.text, null, true);
    return h(
      "div",
      { class: "tool-card" },
      h("div", { class: "tool-head" }, icon("tool"), h("code", { class: "tool-name clip" }, piece.name ?? ""), h("span", { class: "muted mono clip grow brief" }, piece.text)),
    );
  }
}

customElements.define("pv-draft", Draft);
