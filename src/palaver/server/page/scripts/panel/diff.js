/**
 * The view of the difference between two versions, from top to bottom: removed, added and replaced
 * messages (compared word by word). Unchanged messages are folded.
 *
 * @typedef {import("../core/protocol.js").GetConversationsDiff} Answer
 */

import { api, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { go } from "../core/routes.js";
import { get, watch } from "../core/state.js";
import { t } from "../locales/locale.js";
import { attempt } from "../shell/toast.js";
import { visible } from "../thread/text.js";
import { editScript } from "./edit-script.js";
import { messageText, preview } from "./message-text.js";
import { empty, PanelView } from "./panel-view.js";
import { diffText } from "./text-diff.js";

const STEPS = 200;
const PAGE = 50;

/** @extends {PanelView<Answer>} */
export class DiffView extends PanelView {
  constructor() {
    super();
    this.most = STEPS;
  }

  get depends() {
    return /** @type {(keyof import("../core/state.js").State)[]} */ (["detail"]);
  }

  connectedCallback() {
    super.connectedCallback();
    this.stops.push(watch(["head"], () => this.drawChanged()));
  }

  /** The two versions in the address (`3..7`); empty for the last change. */
  get pair() {
    const found = /^(\d+)\.\.(\d+)$/u.exec(get().detail ?? "");
    return found ? { before: Number(found[1]), after: Number(found[2]) } : {};
  }

  /** @param {AbortSignal} signal */
  async load(signal) {
    this.most = STEPS;
    return api.get(url`conversations/${get().id}/diff`, { query: this.pair, signal });
  }

  /** Past versions never change; only the button to the next version does. */
  looks() {
    return `${super.looks()} ${this.hasNext(this.data?.after ?? 0)}`;
  }

  /** @param {number} after */
  hasNext(after) {
    return after < (get().head?.version ?? after);
  }

  /** @param {Answer} data */
  render(data) {
    const steps = editScript(data);
    const changes = steps.filter((step) => step.kind !== "unchanged").length;
    fill(
      this,
      this.tools(data),
      h(
        "p",
        { class: "d-sum", role: "status" },
        data.addedCount ? h("span", { class: "v-new" }, t("views.diff.added", { n: data.addedCount })) : null,
        data.removedCount ? h("span", { class: "v-gone" }, t("views.diff.removed", { n: data.removedCount })) : null,
        changes ? null : h("span", { class: "muted" }, t("views.diff.same")),
      ),
      changes
        ? h("ol", { class: "d-steps" }, steps.slice(0, this.most).map((step) => this.step(step, data)))
        : empty(t("views.diff.same"), t("views.diff.sameHint")),
      steps.length > this.most ? this.more(steps.length - this.most) : beyond(data),
    );
  }

  /** @param {Answer} data */
  tools({ before, after }) {
    const version = (/** @type {string} */ name, /** @type {number} */ value) =>
      h(
        "label",
        { class: "d-version" },
        h("span", null, t(`views.diff.${name}`)),
        h("input", {
          type: "number",
          min: 0,
          value: String(value),
          data: { focus: `diff-${name}` },
          onchange: (/** @type {any} */ event) => this.choose({ [name]: event.target.valueAsNumber }, { before, after }),
        }),
      );
    const step = (/** @type {string} */ name, /** @type {number} */ by, /** @type {boolean} */ able) =>
      h(
        "button",
        {
          type: "button",
          class: "quiet",
          disabled: !able,
          "aria-label": t(`views.diff.${name}`),
          title: t(`views.diff.${name}`),
          data: { focus: `diff-${name}` },
          onclick: () => this.choose({ before: after + by - 1, after: after + by }, { before, after }),
        },
        icon(by < 0 ? "left" : "right"),
      );
    return h(
      "div",
      { class: "v-tools d-tools" },
      h("button", { type: "button", class: "quiet", "aria-label": t("views.diff.back"), title: t("views.diff.back"), data: { focus: "diff-back" }, onclick: () => go({ view: "history" }) }, icon("history")),
      version("before", before),
      h("span", { class: "muted", "aria-hidden": "true" }, "→"),
      version("after", after),
      h("span", { class: "grow" }),
      step("previous", -1, after > 1),
      step("next", 1, this.hasNext(after)),
    );
  }

  /**
   * @param {{before?: number, after?: number}} wanted
   * @param {{before: number, after: number}} now
   */
  choose(wanted, now) {
    const newest = get().head?.version ?? now.after;
    const within = (/** @type {number} */ value) => Math.max(0, Math.min(newest, value));
    const { before, after } = { ...now, ...wanted };
    if (!Number.isInteger(before) || !Number.isInteger(after)) return;
    go({ view: "diff", detail: `${within(before)}..${within(after)}` }, { replace: true });
  }

  /** @param {number} left */
  more(left) {
    const show = () => {
      this.most += STEPS;
      this.draw();
    };
    return h("button", { type: "button", class: "h-older", data: { focus: "more" }, onclick: show }, t("views.diff.more", { n: left }));
  }

  /**
   * @param {import("./edit-script.js").Step} step
   * @param {Answer} data
   */
  step(step, data) {
    if (step.kind === "unchanged") return unchangedRun(step, data.after);
    if (step.kind === "replaced") return replaced(step);
    return h(
      "li",
      { class: `d-step ${step.kind}` },
      heading(step.kind, step.entry),
      h("div", { class: "d-text" }, visible(messageText(step.entry.message) || t("views.noText"))),
    );
  }
}

/** The number of differences that the server did not list. @param {Answer} data */
function beyond({ removed, added, removedCount, addedCount }) {
  const left = removedCount - removed.length + addedCount - added.length;
  return left > 0 ? h("p", { class: "d-beyond muted" }, t("views.diff.beyond", { n: left })) : null;
}

/**
 * The heading of a message: what happened to it, its role and its index.
 *
 * @param {"removed" | "added" | "replaced"} kind
 * @param {import("./edit-script.js").Entry} entry
 */
function heading(kind, { index, message }) {
  const sign = { removed: "−", added: "+", replaced: "±" }[kind];
  return h(
    "div",
    { class: "d-head" },
    h("span", { class: "v-sign", "aria-hidden": "true" }, sign),
    h("span", { class: "d-kind" }, t(`views.diff.${kind}One`)),
    h("span", { class: `v-role ${message.role}` }, t(`views.role.${message.role}`)),
    h("span", { class: "muted" }, t("views.place", { index: String(index) })),
  );
}

/** @param {{before: import("./edit-script.js").Entry, after: import("./edit-script.js").Entry}} step */
function replaced({ before, after }) {
  const spans = diffText(messageText(before.message), messageText(after.message));
  return h(
    "li",
    { class: "d-step replaced" },
    heading("replaced", after),
    before.message.role === after.message.role
      ? null
      : h("p", { class: "d-note" }, t("views.diff.role", { before: t(`views.role.${before.message.role}`), after: t(`views.role.${after.message.role}`) })),
    h(
      "div",
      { class: "d-text" },
      spans.length ? spans.map(({ kind, text }) => (kind === "same" ? visible(text) : h(kind === "gone" ? "del" : "ins", null, visible(text)))) : t("views.diff.sameText"),
    ),
  );
}

/**
 * Unchanged messages: one line that opens to the first words of each.
 *
 * @param {{before: number, after: number, count: number}} run
 * @param {number} version
 */
function unchangedRun(run, version) {
  const list = h("ol", { class: "d-kept-list" });
  let shown = 0;
  const more = h("button", { type: "button", class: "plain", onclick: () => load() }, t("views.diff.moreKept"));
  const load = () =>
    attempt(async () => {
      const start = run.after + shown;
      const stop = Math.min(run.after + run.count, start + PAGE);
      const page = await api.get(url`conversations/${get().id}/messages`, { query: { version, start, stop } });
      list.append(...page.items.map(unchangedLine));
      shown += page.items.length;
      more.hidden = shown >= run.count || !page.items.length;
    });
  return h(
    "li",
    { class: "d-kept" },
    h(
      "details",
      { ontoggle: (/** @type {any} */ event) => event.target.open && !shown && load() },
      h("summary", null, t("views.diff.kept", { n: run.count })),
      list,
      more,
    ),
  );
}

/** @param {import("../core/api.js").Item} item */
function unchangedLine({ index, message }) {
  return h(
    "li",
    null,
    h("span", { class: `v-role ${message.role}` }, `${index} ${t(`views.role.${message.role}`)}`),
    h("span", { class: "v-words" }, preview(messageText(message), 140)),
  );
}

customElements.define("pv-diff", DiffView);
