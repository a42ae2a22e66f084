/**
 * The answers of the running step, as far as they have arrived. Each stays until its message is
 * drawn in the thread. Deltas arrive by a faster way than the news that a message was stored, so
 * the next answer may begin before the last one is drawn.
 *
 * A reader may join in the middle: what had arrived is then read from the server, while deltas come
 * in. A delta says to which answer it belongs and how many characters (code points) precede it, so
 * one that is known changes nothing, and one after a gap waits until the gap is filled.
 *
 * @typedef {object} Piece
 * @property {"text" | "reasoning" | "call"} kind
 * @property {string} text
 * @property {number} length    how many characters the text has
 * @property {string} [name]    the tool that is called, or the member of a team that speaks
 * @property {string} [callID]
 * @property {HTMLElement} [element]   as it was drawn last; gone when there is more
 * @property {Growing} [growing]       what draws its text
 *
 * @typedef {{number: number, pieces: Piece[]}} Answer
 * @typedef {Pick<Piece, "kind" | "text" | "name" | "callID"> & {step: string, answer?: number, start?: number}} Delta
 */

import { fill, h, icon } from "../core/dom.js";
import { t } from "../locales/locale.js";
import { Growing } from "./markdown.js";
import { reasoning } from "./message-parts.js";

/** How long the empty frame stays hidden after an answer was stored, in milliseconds. */
const REST = 700;

export class Draft extends HTMLElement {
  caret = h("span", { class: "caret" });
  /** The place of the line on tokens and costs that the stored answer ends with. */
  foot = h("p", { class: "step-cost muted tiny", "aria-hidden": "true" }, "\u00a0");
  /** @type {Answer[]} what has arrived of each answer that is not drawn as a message yet */
  answers = [];
  /** @type {Delta[]} what came after a gap */
  early = [];
  /** The step. */
  step = "";
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
   * A step runs, and so much of it has arrived. Nothing of it is shown before `show`: the question
   * has to be there first.
   *
   * @param {Pick<import("../core/protocol.js").GetConversationsStep, "step" | "model" | "draft">} running
   */
  begin({ step = "", model, draft }) {
    if (step !== this.step) {
      this.step = step;
      this.answers = [];
      this.early = this.early.filter((delta) => delta.step === step);
      this.speaker = "";
      this.resting = false;
    }
    if (!this.running) this.held = true;
    this.running = true;
    this.model = model ?? "";
    if (draft) this.#fill(draft);
    const early = this.early;
    const oldest = draft?.answer ?? 0; // what came of the answers before it is stored
    this.early = [];
    for (const delta of early) if ((delta.answer ?? 0) >= oldest) this.#add(delta);
    this.#soon();
  }

  /**
   * Add what has just arrived. Returns false if something before it is missing.
   *
   * @param {Delta} delta
   */
  add(delta) {
    if (delta.step !== this.step) {
      this.early.push(delta);
      return false;
    }
    this.running = true;
    this.#soon();
    return this.#add(delta);
  }

  /** Take over what the server has of an answer. @param {import("../core/protocol.js").StepDraftShape} draft */
  #fill({ text, reasoning: thought, calls = [], answer }) {
    /** @type {Omit<Delta, "step">[]} */
    const texts = calls.map((call) => ({ kind: "call", text: call.text, name: call.tool, callID: call.callID }));
    if (text) texts.unshift({ kind: "text", text });
    if (thought) texts.unshift({ kind: "reasoning", text: thought });
    for (const one of texts) this.#add({ ...one, step: this.step, answer });
  }

  /** @param {Delta} delta */
  #add(delta) {
    const { kind, text, name, callID, start = 0, answer: number = 0 } = delta;
    const last = this.answers.at(-1);
    if (last && number < last.number) return true; // of an answer that is over
    const answer = last?.number === number ? last : { number, pieces: [] };
    const before = answer.pieces.find((one) => one.kind === kind && one.callID === callID);
    const known = before?.length ?? 0;
    if (start > known) {
      this.early.push(delta);
      return false;
    }
    if (answer !== last) this.answers.push(answer);
    const fresh = [...text].slice(known - start);
    if (!before) answer.pieces.push({ kind, text, length: fresh.length, name, callID });
    else if (fresh.length) {
      before.text += fresh.join("");
      before.length += fresh.length;
      before.element = undefined;
    }
    return true;
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
    this.early = [];
    this.step = "";
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
    const shown = this.answers.flatMap(({ pieces }) => pieces).map((piece) => (piece.element ??= this.#piece(piece)));
    if (body) fill(body, ...shown, shown.length ? this.foot : null);
    const last = shown.at(-1);
    if (!this.running) this.caret.remove();
    else if (last?.matches(".prose")) (last.querySelector(".rest") ?? last).append(this.caret);
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
    if (piece.kind === "text") {
      piece.growing ??= new Growing();
      piece.growing.grow(piece.text);
      return piece.growing.element;
    }
    if (piece.kind === "reasoning") return reasoning(piece.text, null, true);
    return h(
      "div",
      { class: "tool-card" },
      h("div", { class: "tool-head" }, icon("tool"), h("code", { class: "tool-name clip" }, piece.name ?? ""), h("span", { class: "muted mono clip grow brief" }, piece.text)),
    );
  }
}

customElements.define("pv-draft", Draft);
