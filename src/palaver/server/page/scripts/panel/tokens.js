/**
 * The view of the tokens: the context window as a bar, by role and by message, the size of the next
 * request, the usage and cost so far, and compaction.
 *
 * @typedef {import("../core/protocol.js").GetConversationsTokens} Tokens
 */

import { api, url } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { jump } from "../core/routes.js";
import { canWrite, get } from "../core/state.js";
import { count, money, short, t } from "../locales/locale.js";
import "./waiting-edits.js";
import { compaction } from "./compaction.js";
import { empty, PanelView } from "./panel-view.js";
import { spansOf, windowBar } from "./window-bar.js";

const ROLES = Object.freeze(/** @type {const} */ (["system", "user", "assistant", "tool"]));
const USED = Object.freeze(/** @type {const} */ (["input", "output", "reasoning", "cacheRead", "cacheWrite"]));
const LARGEST = 8;

/** @extends {PanelView<Tokens>} */
export class TokensView extends PanelView {
  get depends() {
    return /** @type {(keyof import("../core/state.js").State)[]} */ (["model"]);
  }

  /** @param {AbortSignal} signal */
  async load(signal) {
    return api.get(url`conversations/${get().id}/tokens`, { query: { model: get().model }, signal });
  }

  /** @param {Tokens} data */
  render(data) {
    if (!data.total && !data.items.length) {
      fill(this, empty(t("views.tokens.none"), t("views.tokens.noneHint")));
      return;
    }
    const room = data.window ?? null;
    // the form for making room keeps what the reader typed in it
    const making = this.querySelector(".t-compact") ?? compaction();
    fill(
      this,
      h(
        "div",
        { class: "v-scroll" },
        headline(data, room),
        this.bar(data, room),
        next(data, room),
        largest(data),
        usage(data.usage),
        h("pv-waiting", null),
        canWrite() ? making : null,
      ),
    );
  }

  /**
   * @param {Tokens} data
   * @param {number | null} room
   */
  bar(data, room) {
    const pointed = h("p", { class: "t-pointed muted", role: "status" }, t("views.tokens.point"));
    const over = (/** @type {import("./window-bar.js").Span | null} */ span) => {
      pointed.textContent = span ? describeSpan(span) : t("views.tokens.point");
    };
    /** @type {import("./window-bar.js").Span[]} */
    const byRole = ROLES.filter((role) => data.byRole[role]).map((role) => ({ start: 0, stop: 0, role, tokens: data.byRole[role] ?? 0 }));
    if (data.other > 0) byRole.push({ start: 0, stop: 0, role: null, tokens: data.other });
    const { limit } = data;
    return h(
      "figure",
      { class: "t-figure" },
      h("p", { class: "t-name" }, t("views.tokens.window")),
      windowBar(byRole, room ?? data.total, { limit }),
      limit && limit < (room ?? 0) ? h("p", { class: "muted tiny" }, t("views.tokens.limit", { limit })) : null,
      roles(data),
      h("p", { class: "t-name" }, t("views.tokens.messages")),
      windowBar(spansOf(data.items), 0, { over, choose: (span) => jump(span.start) }),
      h("figcaption", null, pointed),
    );
  }
}

/** @param {import("./window-bar.js").Span} span */
function describeSpan({ start, stop, role, tokens }) {
  const who = role ? t(`views.role.${role}`) : t("views.tokens.mixed");
  const where = stop - start > 1 ? t("views.tokens.places", { first: String(start), last: String(stop - 1) }) : t("views.place", { index: String(start) });
  return t("views.tokens.span", { where, who, tokens });
}

/**
 * @param {Tokens} data
 * @param {number | null} room
 */
function headline({ total, source }, room) {
  const share = room ? total / room : 0;
  const kind = share >= 1 ? "bad" : share >= 0.8 ? "warn" : "";
  return h(
    "div",
    { class: "t-head" },
    h("p", { class: "t-total" }, h("b", null, count(total)), " ", room ? t("views.tokens.of", { room }) : t("views.tokens.unit")),
    room ? h("span", { class: `chip ${kind}` }, share > 1 ? t("views.tokens.over", { n: short(total - room) }) : t("views.tokens.share", { n: Math.round(share * 100) })) : null,
    h("p", { class: "muted small t-source" }, t(`views.tokens.source.${source}`)),
  );
}

/** @param {Tokens} data */
function roles({ byRole, total, other }) {
  const percent = (/** @type {number} */ n) => h("span", { class: "muted" }, t("views.percent", { n: Math.round((100 * n) / Math.max(total, 1)) }));
  return h(
    "ul",
    { class: "t-roles", "aria-label": t("views.tokens.byRole") },
    ROLES.filter((role) => byRole[role]).map((role) =>
      h(
        "li",
        null,
        h("span", { class: `t-key ${role}`, "aria-hidden": "true" }),
        h("span", null, t(`views.role.${role}`)),
        h("b", null, short(byRole[role] ?? 0)),
        percent(byRole[role] ?? 0),
      ),
    ),
    // with these the parts are the whole
    other ? h("li", null, h("span", { class: "t-key mixed", "aria-hidden": "true" }), h("span", null, t(other > 0 ? "views.tokens.other" : "views.tokens.less")), h("b", null, short(other)), percent(other)) : null,
  );
}

/**
 * The size of the next request, and what it leaves for the answer.
 *
 * @param {Tokens} data
 * @param {number | null} room
 */
function next({ total, model }, room) {
  const left = room === null ? null : room - total;
  const text =
    left === null
      ? t("views.tokens.nextOpen", { holds: total, model })
      : left < 0
        ? t("views.tokens.nextOver", { holds: total, over: -left, model })
        : t("views.tokens.next", { holds: total, left, model });
  return h("p", { class: left !== null && left < 0 ? "t-next v-bad" : "t-next" }, text);
}

/** The largest messages, as buttons that scroll to them; they make the bar usable with the keyboard. @param {Tokens} data */
function largest({ items }) {
  const most = spansOf(items).sort((one, other) => other.tokens - one.tokens).slice(0, LARGEST);
  return h(
    "section",
    { class: "v-section" },
    h("h2", null, t("views.tokens.largest")),
    h(
      "ol",
      { class: "t-largest" },
      most.map((span) =>
        h(
          "li",
          null,
          h(
            "button",
            { type: "button", class: "plain", data: { focus: `at-${span.start}` }, onclick: () => jump(span.start) },
            h("span", { class: `t-key ${span.role ?? "mixed"}`, "aria-hidden": "true" }),
            h("span", { class: "grow clip" }, describeSpan(span)),
            h("span", { class: "t-share", "aria-hidden": "true", vars: { "--share": `${(100 * span.tokens) / Math.max(most[0].tokens, 1)}%` } }),
          ),
        ),
      ),
    ),
  );
}

/** @param {Tokens["usage"]} used */
function usage(used) {
  const some = used?.calls > 0;
  return h(
    "section",
    { class: "v-section" },
    h("h2", null, t("views.usage.title")),
    some
      ? h(
          "table",
          { class: "v-table" },
          h("thead", null, h("tr", null, h("th", { scope: "col" }, h("span", { class: "only-spoken" }, t("views.usage.kind"))), h("th", { scope: "col" }, t("views.usage.last")), h("th", { scope: "col" }, t("views.usage.total")))),
          h("tbody", null, USED.map((name) => h("tr", null, h("th", { scope: "row" }, t(`views.usage.${name}`)), h("td", null, amount(used.last, name)), h("td", null, amount(used.total, name))))),
        )
      : h("p", { class: "muted" }, t("views.usage.none")),
    some ? h("p", { class: "small" }, cost(used.cost)) : null,
  );
}

/** @param {Tokens["usage"]["last"]} counts @param {typeof USED[number]} name */
function amount(counts, name) {
  const { cache, ...plain } = counts ?? {};
  const value = { ...plain, cacheRead: cache?.read, cacheWrite: cache?.write }[name];
  return typeof value === "number" ? count(value) : "–";
}

/** @param {number | null} value */
function cost(value) {
  if (typeof value !== "number") return t("views.usage.noCost");
  return t("views.usage.cost", { cost: money(value) });
}

customElements.define("pv-tokens", TokensView);
