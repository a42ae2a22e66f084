/**
 * The guide for newcomers: five steps to try, in order. When a step is done, the guide folds to one
 * line with the next step.
 */

import { fill, h, icon } from "../core/dom.js";
import { redraw } from "../core/redraw.js";
import { format } from "../core/routes.js";
import { get, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";
import { hide, isDone, isWanted, next, onOnboarding, START, STEPS, TEAM } from "./onboarding.js";

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
    this.subscriptions = [watch(["id", "head", "info", "view"], draw), onOnboarding(draw), onLanguage(draw)];
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
