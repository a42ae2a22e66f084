/**
 * The view of a conversation's history: every version in a picture with text beside it. The focus
 * shows what a version changed, a click shows the version, and a button restores it.
 *
 * @typedef {import("./timeline.js").Versions} Versions
 * @typedef {import("./timeline.js").Row} Row
 */

import { api, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { live } from "../core/live-events.js";
import { go } from "../core/routes.js";
import { canWrite, get, watch } from "../core/state.js";
import { t } from "../locales/locale.js";
import { announceEdit, attempt } from "../shell/toast.js";
import { historyBar } from "./history-bar.js";
import { HistoryCard } from "./history-card.js";
import { GUTTER, linesOf, picture } from "./history-picture.js";
import { fillPreviews, lineRow, parentLine } from "./history-rows.js";
import { openMerge } from "./merge-dialog.js";
import { openEditor } from "./open-editor.js";
import { empty, PanelView } from "./panel-view.js";
import { rowsOf } from "./timeline.js";
import { VersionChanges } from "./version-changes.js";

const PAGE = 500;

/** How far each arrow key moves in the rows: left and down lead to older versions. */
const STEPS = Object.freeze({ ArrowLeft: 1, ArrowDown: 1, ArrowRight: -1, ArrowUp: -1, Home: -Infinity, End: Infinity });

/** @extends {PanelView<Versions>} */
export class HistoryView extends PanelView {
  constructor() {
    super();
    /** @type {Set<string>} runs that are shown one by one */
    this.opened = new Set();
    /** @type {number | null} the version of the row that the keyboard is on */
    this.reached = null;
    /** @type {number | null} the first of two versions to compare */
    this.picked = null;
    /** @type {import("./timeline.js").Change[]} pages before the newest one */
    this.older = [];
    this.changes = new VersionChanges();
    this.card = new HistoryCard(this.changes);
    this.unwatch = () => {};
  }

  get depends() {
    return /** @type {(keyof import("../core/state.js").State)[]} */ (["viewing"]);
  }

  connectedCallback() {
    super.connectedCallback();
    this.stops.push(
      live.on("message.erased", () => this.changes.clear()),
      watch(["head"], () => this.draw()), // a fork is named by what its title adds to this one's
      () => this.unwatch(),
    );
  }

  begin() {
    this.opened.clear();
    this.changes.clear();
    this.unwatch();
    this.card.hide();
    this.older = [];
    this.reached = this.picked = null;
    super.begin();
  }

  /** @param {AbortSignal} signal */
  async load(signal) {
    return api.get(url`conversations/${get().id}/versions`, { query: { limit: PAGE }, signal });
  }

  /** The version that the buttons are about. */
  get chosen() {
    return get().viewing ?? this.data?.version ?? null;
  }

  /** @param {Versions} data */
  render(data) {
    const first = data.items[0]?.version ?? 0;
    const whole = { ...data, items: [...this.older.filter((item) => item.version < first), ...data.items] };
    const rows = rowsOf(whole, this.opened);
    if (!rows.length) {
      fill(this, empty(t("views.history.none"), t("views.history.noneHint")));
      return;
    }
    const top = this.querySelector(".h-scroll")?.scrollTop ?? 0;
    const scroll = this.drawing(whole, linesOf(rows));
    const ways = {
      back: (/** @type {number} */ version) => this.back(version),
      pick: (/** @type {number | null} */ version) => this.pick(version),
      compare: (/** @type {number} */ one, /** @type {number} */ other) => this.compare(one, other),
      fork: (/** @type {number} */ version) => this.fork(version),
      merge: (/** @type {{id: string, at: number}} */ { id, at }) =>
        openMerge({ parent: id, at, fork: String(get().id), into: id }),
    };
    this.card.hide();
    fill(this, this.tools(data), scroll, historyBar(Number(this.chosen), whole, this.picked, this.changes, ways));
    scroll.scrollTop = top;
    this.unwatch();
    this.unwatch = fillPreviews(scroll, this.changes);
  }

  /**
   * @param {Versions} data
   * @param {import("./history-picture.js").Line[]} lines
   */
  drawing(data, lines) {
    const here = String(get().id);
    const context = {
      now: data.version,
      reached: this.reached ?? this.chosen,
      choose: (/** @type {Row} */ row, /** @type {MouseEvent} */ event) => this.choose(row, event),
      focus: (/** @type {Row} */ row) => this.arrived(row),
      point: (/** @type {Row} */ row) => this.point(row, this.button(row.last)),
      leave: () => this.card.hide(),
      merge: (/** @type {import("./timeline.js").Fork} */ { id, at }) => openMerge({ parent: here, at, fork: id, into: here }),
    };
    const marks = { selected: get().viewing, now: data.version, picked: this.picked };
    return h(
      "div",
      { class: "h-scroll", vars: { "--gutter": `${GUTTER}px` } },
      h(
        "div",
        { class: "h-drawing", onkeydown: (/** @type {KeyboardEvent} */ event) => this.moved(event) },
        h("ol", { class: "h-rows", "aria-label": t("views.history.rows") }, lines.map((line) => lineRow(line, context))),
        picture(lines, marks),
        this.card.element,
      ),
      this.olderButton(data),
    );
  }

  /** @param {Versions} data */
  tools({ undo, redo }) {
    const writes = canWrite();
    const way = (/** @type {"undo" | "redo"} */ name, /** @type {boolean} */ able) =>
      h(
        "button",
        { type: "button", disabled: !able || !writes, data: { focus: name }, onclick: () => this.step(name) },
        icon(name),
        t(`views.history.${name}`),
      );
    const edit = () => openEditor({ action: "truncate" });
    return h(
      "div",
      { class: "v-tools", role: "toolbar", "aria-label": t("views.history.tools") },
      way("undo", undo),
      way("redo", redo),
      h("span", { class: "grow" }),
      h("button", { type: "button", disabled: !writes, data: { focus: "edit" }, onclick: edit }, icon("edit"), t("views.history.edit")),
    );
  }

  /** A button that loads older versions, or the origin of the conversation. @param {Versions} data */
  olderButton(data) {
    const first = data.items[0]?.version ?? 0;
    if (first <= 0) return parentLine(data);
    const load = () =>
      attempt(async () => {
        const after = Math.max(first - PAGE, 0) - 1;
        const query = { after, limit: first - 1 - after };
        const page = await api.get(url`conversations/${get().id}/versions`, { query });
        this.older = [...page.items, ...this.older];
        this.draw();
      });
    return h("button", { type: "button", class: "h-older", data: { focus: "older" }, onclick: load }, t("views.history.older"));
  }

  /** Start or stop a comparison; the row that is chosen next is the other side. @param {number | null} version */
  pick(version) {
    this.picked = version;
    this.draw();
    if (version === null) return;
    const row = this.querySelector('.h-button[tabindex="0"]');
    if (row instanceof HTMLElement) row.focus();
  }

  /**
   * @param {Row} row
   * @param {MouseEvent} event
   */
  choose(row, event) {
    this.card.hide();
    this.reached = row.last;
    const first = this.picked ?? (event.shiftKey ? this.chosen : null);
    if (first !== null && first !== row.last) {
      this.compare(first, row.last);
    } else if (row.count > 1) {
      this.opened.add(row.key);
      this.draw();
      this.button(row.last)?.focus();
    } else {
      go({ at: row.last === this.data?.version ? null : row.last });
      this.draw();
    }
  }

  /** @param {number} one @param {number} other */
  compare(one, other) {
    this.picked = null;
    go({ view: "diff", detail: `${Math.min(one, other)}..${Math.max(one, other)}` });
  }

  /** @param {KeyboardEvent} event */
  moved(event) {
    if (event.key === "Escape" && this.picked !== null) {
      event.preventDefault();
      this.pick(null);
      return;
    }
    const step = STEPS[/** @type {keyof typeof STEPS} */ (event.key)];
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const rows = [...this.querySelectorAll(".h-button, .h-fork a")];
    const here = rows.indexOf(/** @type {Element} */ (event.target));
    const next = /** @type {HTMLElement} */ (rows[Math.max(0, Math.min(rows.length - 1, here + step))]);
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  /** @param {number} version */
  button(version) {
    return /** @type {HTMLElement | null} */ (this.querySelector(`.h-button[data-version="${version}"]`));
  }

  /** Note which row has the focus. @param {Row} row */
  arrived(row) {
    this.reached = row.last;
    const button = this.button(row.last);
    for (const each of this.querySelectorAll(".h-button")) each.setAttribute("tabindex", each === button ? "0" : "-1");
    if (button?.matches(":focus-visible")) this.point(row, button);
  }

  /** Show what a version changed, unless it is one of the conversation before. @param {Row} row @param {HTMLElement | null} button */
  point(row, button) {
    if (!this.stale) this.card.soon(button, row);
  }

  /** Undo or redo; the picture shows the result. @param {"undo" | "redo"} way */
  async step(way) {
    await attempt(() => api.post(url`conversations/${get().id}/${way}`));
    this.soon();
  }

  /** @param {number} version */
  async back(version) {
    const done = await attempt(() => api.post(url`conversations/${get().id}/restore`, { version }));
    if (!done) return;
    go({ at: null });
    announceEdit(t("views.history.backDone", { version: String(version) }), done.version);
    this.soon();
  }

  /** @param {number} at */
  async fork(at) {
    const head = await attempt(() => api.post(url`conversations/${get().id}/fork`, { at }));
    if (head) go({ id: head.id, at: null });
  }
}

customElements.define("pv-history", HistoryView);
