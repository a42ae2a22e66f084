/**
 * The view of the runs: what a conversation used in all, what it and the whole store spent over
 * time, and its turns as a waterfall, a page at a time.
 *
 * @typedef {import("../core/protocol.js").GetConversationsRuns} Runs
 * @typedef {import("../core/protocol.js").GetConversationsCosts} Costs
 * @typedef {import("../core/protocol.js").GetCosts} StoreCosts
 * @typedef {import("./cost-chart.js").Measure} Measure
 * @typedef {{runs: Runs, costs: Costs, store: StoreCosts | null}} RunData
 */

import { api, url } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { go } from "../core/routes.js";
import { get } from "../core/state.js";
import { count, duration, money, short, t } from "../locales/locale.js";
import { costChart, MEASURES } from "./cost-chart.js";
import { choice } from "./edit-forms.js";
import { empty, PanelView } from "./panel-view.js";
import { waterfall } from "./waterfall.js";

/** The times that the store's costs can be looked at, in days. */
const RANGES = Object.freeze(["1", "7", "30", "90", "365"]);

/** @extends {PanelView<RunData>} */
export class RunView extends PanelView {
  /** @type {number | null} the index before which the page of turns ends; null is the newest page */
  stop = null;
  /** @type {number[]} where the newer pages end, the newest first; 0 stands for the newest page */
  newer = [];
  /** @type {number | null} how many days of the whole store are shown; null is this conversation */
  days = null;
  /** @type {Measure | null} what the chart shows; null is the cost, where one is known */
  measure = null;
  opened = "";

  get depends() {
    return /** @type {(keyof import("../core/state.js").State)[]} */ (["stepping"]);
  }

  begin() {
    if (this.opened !== get().id) {
      this.opened = get().id ?? "";
      this.stop = null;
      this.newer = [];
    }
    super.begin();
  }

  /** @param {AbortSignal} signal */
  async load(signal) {
    const { id } = get();
    const offset = -new Date().getTimezoneOffset();
    const [runs, costs, store] = await Promise.all([
      api.get(url`conversations/${id}/runs`, { query: { stop: this.stop }, signal }),
      api.get(url`conversations/${id}/costs`, { signal }),
      this.days === null ? null : api.get(url`costs`, { query: { days: this.days, offset }, signal }),
    ]);
    // the server counts for a moment and says how far it came: the next question goes on
    if (!costs.complete || store?.complete === false) this.soon();
    return { runs, costs, store };
  }

  looks() {
    return JSON.stringify([super.looks(), this.stop, this.days, this.measure]);
  }

  /** @param {RunData} data */
  render({ runs, costs, store }) {
    if (!runs.length && !costs.usage.calls && this.days === null) {
      fill(this, empty(t("run.none"), t("run.noneHint")));
      return;
    }
    const open = this.querySelector("details")?.open ?? false;
    fill(this, h("div", { class: "v-scroll" }, totals(costs), this.spending(costs, store), this.turns(runs)));
    const table = this.querySelector("details");
    if (table) table.open = open;
  }

  /**
   * What was spent over time, by this conversation or by all of them.
   *
   * @param {Costs} costs
   * @param {StoreCosts | null} store
   */
  spending(costs, store) {
    const points = store ? store.points : costs.points;
    const measure = this.measure ?? (points.some(({ cost }) => cost !== null) ? "cost" : "tokens");
    const scope = choice(
      [["here", t("run.scope.here")], ...RANGES.map((days) => [days, t("run.scope.all", { n: Number(days) })])],
      this.days === null ? "here" : String(this.days),
      (value) => {
        this.days = value === "here" ? null : Number(value);
        this.reload();
      },
    );
    const kind = choice(
      MEASURES.map((name) => [name, t(`run.measure.${name}`)]),
      measure,
      (value) => {
        this.measure = /** @type {Measure} */ (value);
        this.draw();
      },
    );
    scope.dataset.focus = "run-scope";
    kind.dataset.focus = "run-measure";
    scope.setAttribute("aria-label", t("run.scope"));
    kind.setAttribute("aria-label", t("run.measure"));
    return h(
      "section",
      { class: "v-section" },
      h("h2", null, t("run.spent")),
      h("div", { class: "run-choices" }, kind, scope),
      points.some(({ calls }) => calls) ? costChart(chartOf(costs, store, measure)) : h("p", { class: "muted" }, t("run.nothingSpent")),
      (store ? storeNotes(store) : ownNotes(costs)).map((text) => h("p", { class: "muted tiny" }, text)),
      store?.top.length ? costliest(store.top) : null,
    );
  }

  /** @param {Runs} runs */
  turns(runs) {
    const { turns, start, stop, length } = runs;
    const page = (/** @type {number | null} */ to) => {
      this.stop = to;
      this.reload();
    };
    const older = () => {
      this.newer.unshift(this.stop ?? 0);
      page(start);
    };
    const pager = start > 0 || stop < length;
    return h(
      "section",
      { class: "v-section" },
      h("h2", null, t("run.turns")),
      h("p", { class: "muted tiny" }, pageFacts(turns)),
      turns.length ? waterfall(turns) : h("p", { class: "muted" }, t("run.noTurns")),
      get().stepping && stop === length ? h("p", { class: "muted", role: "status" }, t("run.running")) : null,
      pager
        ? h(
            "div",
            { class: "row run-pager" },
            h("button", { type: "button", disabled: stop >= length, onclick: () => page(this.newer.shift() || null) }, t("run.newer")),
            h("span", { class: "muted tiny grow" }, t("run.range", { first: String(start), last: String(stop - 1), n: length })),
            h("button", { type: "button", disabled: start === 0, onclick: older }, t("run.older")),
          )
        : null,
    );
  }
}

/** What the conversation used in all: the figures that the tokens have. @param {Costs} costs */
function totals({ usage, unknownCosts }) {
  const { total, calls, cost } = usage;
  const { read = 0, write = 0 } = total.cache;
  const prompt = total.input + read + write;
  const share = prompt ? Math.round((100 * read) / prompt) : 0;
  const facts = [
    ["run.total.cost", cost === null ? t("run.unknown") : money(cost)],
    ["run.total.calls", count(calls)],
    ["run.total.prompt", short(prompt)],
    ["run.total.completion", short(total.output + total.reasoning)],
    ["run.total.cached", `${short(read)} · ${t("views.percent", { n: share })}`],
    ["run.total.written", short(write)],
  ];
  return h(
    "div",
    null,
    h("dl", { class: "run-totals" }, facts.map(([name, value]) => h("div", null, h("dt", null, t(name)), h("dd", null, value)))),
    cost !== null && unknownCosts ? h("p", { class: "muted tiny" }, t("run.unpriced", { n: unknownCosts })) : null,
  );
}

/**
 * @param {Costs} costs
 * @param {StoreCosts | null} store
 * @param {Measure} measure
 */
function chartOf(costs, store, measure) {
  if (store) {
    const { points, since, until, bucket } = store;
    return { points, since, until, bucket, measure, rising: false, label: t("run.chart.all") };
  }
  const { points, bucket } = costs;
  const until = (points.at(-1)?.at ?? 0) + bucket;
  return { points, since: points[0].at, until, bucket, measure, rising: true, label: t("run.scope.here") };
}

/** What the figures of the conversation cover. @param {Costs} costs */
function ownNotes({ complete, read, length, usage, dated }) {
  return [
    complete ? "" : t("run.counting", { read, length }),
    usage.calls > dated && complete ? t("run.erased", { n: usage.calls - dated }) : "",
    t("run.covers.here"),
  ].filter(Boolean);
}

/** What the figures of the store cover. @param {StoreCosts} store */
function storeNotes({ complete, counted, conversations, older, total }) {
  return [
    total.calls ? t("run.storeTotal", { n: total.calls, cost: total.cost === null ? t("run.unknown") : money(total.cost) }) : "",
    complete ? "" : t("run.countingStore", { read: counted, length: conversations }),
    older ? t("run.olderLeftOut", { n: conversations }) : "",
    total.cost !== null && total.unknownCosts ? t("run.unpriced", { n: total.unknownCosts }) : "",
    t("run.covers.all", { n: conversations }),
  ].filter(Boolean);
}

/** @param {StoreCosts["top"]} top */
function costliest(top) {
  return [
    h("h3", { class: "run-top-title" }, t("run.costliest")),
    h(
      "ol",
      { class: "run-costliest" },
      top.map(({ id, title, cost }) => h("li", null, h("button", { type: "button", class: "plain", data: { focus: `top-${id}` }, onclick: () => go({ id }) }, h("span", { class: "grow clip" }, title ?? id), h("b", null, money(cost ?? 0))))),
    ),
  ];
}

/** The sums of what a page shows. @param {Runs["turns"]} turns */
function pageFacts(turns) {
  const steps = turns.flatMap((turn) => turn.steps);
  const calls = [...steps.flatMap((step) => step.calls), ...turns.flatMap((turn) => turn.results)];
  const time = (/** @type {{start?: number | null, end?: number | null}[]} */ rows) => rows.reduce((sum, { start, end }) => sum + (typeof start === "number" && typeof end === "number" ? end - start : 0), 0);
  const retries = steps.reduce((sum, step) => sum + step.retries.length, 0);
  const failed = steps.filter(({ outcome }) => outcome !== "finished").length + calls.filter(({ status }) => status === "error").length;
  return [
    t("run.onPage", { n: steps.length }),
    t("run.modelTime", { time: duration(time(steps)) }),
    calls.length ? t("run.toolTime", { n: calls.length, time: duration(time(calls)) }) : "",
    retries ? t("run.retries", { n: retries }) : "",
    failed ? t("run.wrong", { n: failed }) : "",
  ].filter(Boolean).join(" · ");
}

customElements.define("pv-run", RunView);
