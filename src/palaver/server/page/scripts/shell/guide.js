/**
 * The guide for newcomers: five steps to try, in order, each with a button that does it as far as
 * the reader need not decide. When a step is done, the guide folds to one line with the next step.
 */

import { fill, h, icon } from "../core/dom.js";
import { bind } from "../core/keyboard.js";
import { redraw } from "../core/redraw.js";
import { actionNamed } from "../core/registry.js";
import { format, go } from "../core/routes.js";
import { get, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";
import { ask } from "../thread/suggestions.js";
import { begin } from "./conversation-actions.js";
import { openFound } from "./found-transcripts.js";
import { hide, isDone, isWanted, next, onOnboarding, openStart, START, STEPS, TEAM, versionBefore } from "./onboarding.js";

/** @typedef {import("./onboarding.js").Step} Step */

/** Where a window is so low, the guide begins as one line: the thread needs the room. */
const SHORT = "(max-height: 560px)";

export class Guide extends HTMLElement {
  /** @type {(() => void)[]} */
  subscriptions = [];

  connectedCallback() {
    this.setAttribute("role", "region");
    /** Whether the reader opened or folded it; null until then. @type {boolean | null} */
    this.open = null;
    const draw = () => redraw(this, () => this.#draw());
    this.subscriptions = [
      watch(["id", "head", "info", "view", "viewing", "stepping"], draw),
      onOnboarding(draw),
      onLanguage(draw),
      bind({ keys: ".", label: "guide.key", group: "keys.page", when: () => isWanted() && !get().stepping, run: () => perform(next()) }),
    ];
    this.#draw();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
  }

  #draw() {
    this.hidden = !isWanted();
    if (this.hidden) {
      fill(this);
      return;
    }
    this.setAttribute("aria-label", t("guide.title"));
    const open = this.open ?? (STEPS.every((step) => !isDone(step)) && !matchMedia(SHORT).matches);
    fill(
      this,
      h(
        "div",
        { class: "guide" },
        h("details", { class: "fold grow", open, ontoggle: (/** @type {any} */ event) => this.#folded(event.target.open, open) }, summary(), h("ol", null, STEPS.map(line))),
        doing(),
        h("button", { type: "button", class: "quiet", "aria-label": t("guide.hide"), title: t("guide.hide"), onclick: hide }, icon("x")),
      ),
    );
  }

  /**
   * @param {boolean} now
   * @param {boolean} drawn
   */
  #folded(now, drawn) {
    if (now !== drawn || this.open !== null) this.open = now;
  }
}

/** The buttons that do the next step, or what comes after the last. */
function doing() {
  const step = next();
  const button = (/** @type {string} */ label, /** @type {() => unknown} */ run, /** @type {string} */ kind) =>
    h("button", { type: "button", class: `${kind} guide-do`, title: ".", disabled: get().stepping, data: { focus: `guide-${kind}` }, onclick: run }, label);
  if (step) return button(t(isLookingBack(step) ? "past.restore" : `guide.${step}.do`), () => perform(step), "primary");
  return [get().info?.discovers ? button(t("guide.end.import"), openFound, "plain") : null, button(t("sidebar.new"), begin, "primary")];
}

/** Do a step, up to what the reader decides. @param {Step | undefined} step */
async function perform(step) {
  if (!step) return begin();
  if (step === "explain") return go({ id: TEAM, view: "explain", at: null });
  if (isLookingBack(step)) return restoring()?.click();
  if (get().id !== START || get().viewing !== null) await arrive();
  if (step === "ask") ask("suggest.plain");
  else if (step === "call") ask("suggest.dice", "roll_dice");
  else if (step === "cut") cut();
  else lookBack();
}

/** Open the first demo conversation, and wait until it is drawn. */
async function arrive() {
  openStart();
  await new Promise((resolve) => {
    const stop = watch(["head"], ({ id, head }) => (head || id !== START) && (stop(), resolve(null)));
    if (get().head?.id === START) (stop(), resolve(null));
  });
  await document.querySelector("pv-thread")?.drawn;
}

/** Offer to cut the last exchange: the dialog shows what that costs. Without one, ask first. */
function cut() {
  const thread = document.querySelector("pv-thread");
  const stop = thread?.length ?? 0;
  const all = Array.from({ length: stop }, (_, index) => thread?.itemAt(index));
  const start = all.findLastIndex((item) => item?.message.role === "user");
  const item = all[start];
  if (item) actionNamed("delete")?.run({ start, stop, item });
  else ask("suggest.plain");
}

/** Show the version before the cut; the button that goes back to it is ready. */
function lookBack() {
  go({ view: "history", at: versionBefore() });
  requestAnimationFrame(() => restoring()?.focus());
}

/** Whether the version to go back to is shown. @param {Step | undefined} step */
function isLookingBack(step) {
  return step === "back" && get().id === START && get().viewing !== null;
}

/** The button above the thread that goes back to the version that is shown. @returns {HTMLElement | null} */
function restoring() {
  return document.querySelector("pv-head .notice button");
}

function summary() {
  const step = next();
  const count = STEPS.filter(isDone).length;
  return h(
    "summary",
    { data: { focus: "guide" } },
    icon("right"),
    h("strong", null, t("guide.title")),
    h("span", { class: "muted" }, t("guide.count", { n: count, of: STEPS.length })),
    h("span", { class: "guide-next clip" }, step ? [h("strong", null, t(`guide.${step}.name`)), " ", t(`guide.${step}`)] : t("guide.end")),
  );
}

/**
 * @param {Step} step
 * @param {number} place
 */
function line(step, place) {
  const name = t(`guide.${step}.name`);
  const where = placeOf(step);
  const done = isDone(step);
  return h(
    "li",
    { class: done ? "done" : "", "aria-current": step === next() ? "step" : null },
    h("span", { class: "guide-place" }, done ? icon("check") : String(place + 1)),
    h("span", null, where ? h("a", { href: where }, name) : h("strong", null, name), done ? h("span", { class: "only-spoken" }, ` ${t("guide.done")}`) : null, " ", t(`guide.${step}`)),
  );
}

/** The address where a step can be done; null if it is here. @param {Step} step */
function placeOf(step) {
  const { id, view } = get();
  if (id === null) return step === "explain" ? format({ id: TEAM, view: "explain" }) : format({ id: START });
  if (step === "explain") return view === "explain" && id === TEAM ? null : format({ id: TEAM, view: "explain" });
  if (step === "back" && view !== "history") return format({ id, view: "history" });
  return null;
}

customElements.define("pv-guide", Guide);
