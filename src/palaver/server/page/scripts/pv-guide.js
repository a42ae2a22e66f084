/**
 * The guide through the first minute: five things to try, in the order they build on each other.
 * Once something was done it is one line, with what comes next.
 */

import { fill, h, icon } from "./dom.js";
import { hide, isDone, isWanted, next, onMinute, START, STEPS, TEAM } from "./minute.js";
import { redraw } from "./redrawing.js";
import { format } from "./routes.js";
import { get, watch } from "./state.js";
import { onLanguage, t } from "./words.js";

/** @typedef {import("./minute.js").Step} Step */

class Guide extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "region");
    /** Whether the reader folded it or not; until then it folds by itself. @type {boolean | null} */
    this.open = null;
    const draw = () => redraw(this, () => this.#draw());
    this.quiet = [watch(["id", "head", "info", "view"], draw), onMinute(draw), onLanguage(draw)];
    this.#draw();
  }

  disconnectedCallback() {
    this.quiet?.forEach((stop) => stop());
  }

  #draw() {
    this.hidden = !isWanted();
    if (this.hidden) {
      fill(this);
      return;
    }
    this.setAttribute("aria-label", t("guide.title"));
    const open = this.open ?? STEPS.every((step) => !isDone(step));
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

/** Where a step is done, if that is not here. @param {Step} step */
function placeOf(step) {
  const { id, view } = get();
  if (id === null) return step === "explain" ? format({ id: TEAM, view: "explain" }) : format({ id: START });
  if (step === "explain") return view === "explain" && id === TEAM ? null : format({ id: TEAM, view: "explain" });
  if (step === "back" && view !== "history") return format({ id, view: "history" });
  return null;
}

customElements.define("pv-guide", Guide);
