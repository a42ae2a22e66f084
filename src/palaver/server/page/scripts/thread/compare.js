/**
 * Two answers to one question, side by side: of two models, or of one with other settings. Each new
 * answer is given in a fork of the version on the screen, so both begin with the same messages and
 * this conversation stays as it is. An answer that is here already can be one of the two.
 *
 * @typedef {import("../core/api.js").Item} Item
 * @typedef {import("../core/api.js").Message} Message
 * @typedef {{model: string | null, temperature: string, most: string, tools: boolean}} Choice
 *   what one side asks for; a model of null is the answer that is here
 */

import { api, Problem, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { live } from "../core/live-events.js";
import { go } from "../core/routes.js";
import { allowedTools, chosenModel, get, nameOf } from "../core/state.js";
import { duration, short, t } from "../locales/locale.js";
import { dialog } from "../shell/dialog.js";
import { attempt } from "../shell/toast.js";
import { readAlternatives } from "./alternatives.js";
import { usualTools } from "./composer-controls.js";
import { learn, markdown } from "./markdown.js";
import { textOf } from "./message-actions.js";
import { interruptedNote, isInterrupted } from "./message.js";
import { countBefore, cutAfter } from "./regenerate.js";
import { prose, visible } from "./text.js";
import { stateChip } from "./tool-card.js";

/** How long to wait for the end of a step before looking for it, in milliseconds: an event may be lost. */
const LOOK = 1500;

/**
 * Open the dialog for the answers to what precedes a message.
 *
 * @param {Item} item
 * @param {number} version  what is on the screen
 */
export async function openCompare(item, version) {
  const keep = countBefore(item);
  const here = document.querySelector("pv-thread")?.itemAt(keep);
  const answer = here?.message.role === "assistant" ? here.message : undefined;
  const box = dialog();
  const sides = ["A", "B"].map((name, at) => new Side(name, { keep, version, answer: at === 0 ? answer : undefined, other: at === 1, close: () => box.close() }));
  const start = h("button", { type: "submit", class: "primary", autofocus: true }, icon("play"), t("compare.run"));
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    start.disabled = true;
    Promise.all(sides.map((side) => side.run())).finally(() => (start.disabled = false));
  };
  const form = h(
    "form",
    { class: "compare", onsubmit: submit },
    h("p", { class: "muted small" }, t("compare.says")),
    h("div", { class: "compare-sides" }, ...sides.map((side) => side.element)),
    h("footer", { class: "dialog-foot" }, h("button", { type: "button", onclick: () => box.close() }, t("close")), start),
  );
  box.classList.add("broad");
  await box.ask({ title: t("compare.title"), wide: true }, form);
  sides.forEach((side) => side.stop());
  await readAlternatives();
}

/** One side: what it asks for, and what was answered. */
class Side {
  /** The fork that it asked in. */
  fork = "";
  text = "";
  /** Whether the server has started the step. */
  begun = false;
  stop = () => {};

  /**
   * @param {string} name
   * @param {{keep: number, version: number, answer: Message | undefined, other: boolean, close: () => void}} about
   */
  constructor(name, { keep, version, answer, other, close }) {
    const ready = (get().info?.models ?? []).filter((model) => model.ready);
    const mine = chosenModel()?.name ?? "";
    const next = ready.find((model) => model.name !== mine)?.name ?? mine;
    this.keep = keep;
    this.version = version;
    this.answer = answer;
    this.close = close;
    /** @type {Choice} */
    this.choice = { model: answer ? null : other ? next : mine, temperature: "", most: "", tools: hasTools() };
    this.result = h("div", { class: "compare-result", "aria-live": "polite" });
    this.element = h("fieldset", { class: "compare-side" }, h("legend", null, name), this.#settings(ready), this.result);
    if (answer) this.#show([answer]);
  }

  /** @param {import("../core/protocol.js").GetInfo["models"]} ready */
  #settings(ready) {
    const { choice, answer } = this;
    const options = ready.map(({ name, label }) => h("option", { value: name, selected: name === choice.model }, label));
    const own = answer ? h("option", { value: "", selected: choice.model === null }, t("compare.here")) : null;
    const number = (/** @type {"temperature" | "most"} */ field, /** @type {Record<string, any>} */ limits) =>
      labelled(
        t(`compare.${field}`),
        h("input", { type: "number", ...limits, placeholder: t("compare.default"), oninput: (/** @type {any} */ event) => (choice[field] = event.target.value) }),
      );
    const asked = h(
      "div",
      { class: "compare-asked", hidden: choice.model === null },
      number("temperature", { min: 0, max: 2, step: 0.1 }),
      number("most", { min: 1, step: 1 }),
      get().info?.tools.length
        ? h("label", { class: "row small" }, h("input", { type: "checkbox", checked: choice.tools, onchange: (/** @type {any} */ event) => (choice.tools = event.target.checked) }), t("composer.tools"))
        : null,
    );
    const change = (/** @type {any} */ event) => {
      choice.model = event.target.value || null;
      asked.hidden = choice.model === null;
      fill(this.result);
      if (choice.model === null && answer) this.#show([answer]);
    };
    return h("div", { class: "compare-settings" }, labelled(t("compare.model"), h("select", { onchange: change }, own, ...options)), asked);
  }

  /** Ask, in a fork, and show what comes. */
  async run() {
    if (this.choice.model === null) return;
    this.stop();
    this.text = "";
    this.begun = false;
    fill(this.result, h("p", { class: "row muted small" }, h("span", { class: "dot busy" }), t("compare.writing")));
    const began = Date.now();
    try {
      await this.#ask();
      const { items } = await api.get(url`conversations/${this.fork}/messages`, { query: { start: this.keep } });
      await this.#show(items.map((/** @type {Item} */ item) => item.message), Date.now() - began);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      fill(this.result, h("p", { class: "row small danger-text", role: "alert" }, icon("alert"), error.status === 0 ? t("failed.unreachable") : error.message));
    } finally {
      this.stop();
    }
  }

  async #ask() {
    const { model, temperature, most, tools } = this.choice;
    const { id, head } = get();
    const label = get().info?.models.find(({ name }) => name === model)?.label ?? model;
    const title = [head ? nameOf(head) : "", [label, temperature].filter(Boolean).join(" ")].filter(Boolean).join(" · ");
    const fork = await api.post(url`conversations/${id}/fork`, { at: this.version, title });
    this.fork = fork.id;
    document.dispatchEvent(new CustomEvent("pv-conversations"));
    const ended = this.#follow();
    ended.catch(() => {}); // it may fail before the request is answered; `await` below throws it
    const options = { ...(temperature ? { temperature: Number(temperature) } : {}), ...(most ? { max_tokens: Number(most) } : {}) };
    const operations = cutAfter(this.keep);
    await api.post(url`conversations/${fork.id}/step`, { model, ...(tools === hasTools() ? usualTools() : { tools }), options, ...(operations.length ? { operations } : {}) }, { version: fork.version });
    this.begun = true;
    await ended;
  }

  /** Show the answer as it is written; the promise is kept when it is over. @returns {Promise<void>} */
  #follow() {
    const { fork } = this;
    return new Promise((resolve, reject) => {
      const look = async () => {
        const step = await api.get(url`conversations/${fork}/step`).catch(() => null);
        if (step && !step.running && this.begun) resolve();
      };
      const timer = setInterval(look, LOOK);
      const delta = live.on("step.delta", ({ conversation, kind, text, start }) => {
        if (conversation !== fork || kind !== "text") return;
        this.text = [...this.text].slice(0, start).join("") + text;
        fill(this.result, prose(this.text));
      });
      const end = live.on("step.ended", ({ conversation, outcome, error }) => {
        if (conversation !== fork) return;
        if (outcome === "failed") reject(new Problem(500, { detail: error?.message ?? t("failed") }));
        else resolve();
      });
      this.stop = () => {
        clearInterval(timer);
        delta();
        end();
        resolve();
      };
    });
  }

  /**
   * @param {Message[]} messages
   * @param {number} [took]
   */
  async #show(messages, took) {
    await learn(messages.map(textOf));
    const waits = messages.flatMap(partsOf).some(({ type, callID }) => type === "tool-call" && !hasResult(messages, callID));
    fill(
      this.result,
      h("div", { class: "compare-answer" }, ...messages.map(answerElement)),
      messages.some(isInterrupted) ? interruptedNote() : null,
      waits ? h("p", { class: "row small cut-off" }, icon("clock"), t("compare.waits")) : null,
      h("p", { class: "muted tiny" }, facts(messages, took)),
      this.fork && this.choice.model !== null ? this.#buttons() : null,
    );
  }

  #buttons() {
    const { fork } = this;
    const open = () => {
      this.close();
      go({ id: fork, at: null });
    };
    const discard = () =>
      attempt(async () => {
        await api.delete(url`conversations/${fork}`);
        this.fork = "";
        document.dispatchEvent(new CustomEvent("pv-conversations"));
        fill(this.result, h("p", { class: "muted small" }, t("compare.discarded")));
      });
    return h(
      "div",
      { class: "row" },
      h("button", { type: "button", onclick: open }, icon("fork"), t("compare.open")),
      h("button", { type: "button", class: "plain", onclick: discard }, icon("trash"), t("compare.discard")),
    );
  }
}

/** Whether the next step of the conversation may use any tool. */
function hasTools() {
  const allowed = allowedTools();
  return Array.isArray(allowed) ? allowed.length > 0 : allowed;
}

/**
 * @param {string} label
 * @param {HTMLElement} field
 */
function labelled(label, field) {
  return h("label", { class: "field" }, h("span", { class: "small" }, label), field);
}

/** @param {Message} message */
function answerElement({ role, content }) {
  if (typeof content === "string") return content ? markdown(content) : null;
  return h(
    "div",
    { class: "prose", data: { role } },
    content.map((/** @type {Record<string, any>} */ part) => {
      if (part.type === "text") return markdown(part.text);
      if (part.type === "tool-call") return h("p", { class: "row small muted" }, icon("tool"), h("code", { class: "clip" }, `${part.tool} ${JSON.stringify(part.input ?? {})}`));
      if (part.type === "tool") return h("p", { class: "row small" }, stateChip(part.state), h("span", { class: "clip" }, visible(part.state.output ?? part.state.error ?? "")));
      return null;
    }),
  );
}

/** @param {Message} message @returns {Record<string, any>[]} */
function partsOf({ content }) {
  return Array.isArray(content) ? content : [];
}

/**
 * @param {Message[]} messages
 * @param {string} callID
 */
function hasResult(messages, callID) {
  return messages.flatMap(partsOf).some(({ type, callID: answered }) => type === "tool" && answered === callID);
}

/**
 * The model, the time, the tokens and the cost of an answer.
 *
 * @param {Message[]} messages
 * @param {number} [took]
 */
function facts(messages, took) {
  const ends = messages.flatMap(partsOf).filter(({ type }) => type === "step-finish");
  const tokens = ends.reduce((sum, { tokens: used }) => sum + (used ? used.output + used.reasoning : 0), 0);
  const cost = ends.reduce((sum, { cost: paid }) => sum + (paid ?? 0), 0);
  const model = messages.find(({ info }) => info?.role === "assistant" && info.model)?.info;
  return [
    model && "model" in model ? model.model?.modelID : "",
    took === undefined ? "" : duration(took),
    tokens ? t("compare.tokens", { n: short(tokens) }) : "",
    cost ? `$${cost.toFixed(4)}` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}
