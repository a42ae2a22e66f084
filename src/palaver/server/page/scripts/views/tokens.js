/**
 * Where the tokens are: the context window as a bar, by role and by message, what the next request
 * would hold, what has been used and paid, and making room by hand.
 */

import { api, url } from "../api.js";
import { fill, h } from "../dom.js";
import { canWrite, get } from "../state.js";
import { count, short, t } from "../words.js";
import { compaction } from "./compaction.js";
import { jump } from "./jumping.js";
import { empty, Pane } from "./pane.js";
import { stretchesOf, windowBar } from "./window_bar.js";

const ROLES = Object.freeze(["system", "user", "assistant", "tool"]);
const LARGEST = 8;

/** @extends {Pane<any>} */
class Tokens extends Pane {
  get depends() {
    return /** @type {any} */ (["model"]);
  }

  /** @param {AbortSignal} signal */
  async load(signal) {
    return api.get(url`conversations/${get().id}/tokens`, { query: { model: get().model }, signal });
  }

  /** @param {any} data */
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
        canWrite() ? making : null,
      ),
    );
  }

  /**
   * @param {any} data
   * @param {number | null} room
   */
  bar(data, room) {
    const pointed = h("p", { class: "t-pointed muted", role: "status" }, t("views.tokens.point"));
    const over = (/** @type {any} */ stretch) => {
      pointed.textContent = stretch ? saidOf(stretch) : t("views.tokens.point");
    };
    const byRole = ROLES.filter((role) => data.byRole[role]).map((role) => ({ start: 0, stop: 0, role, tokens: data.byRole[role] }));
    const warned = data.limit && data.limit < (room ?? 0);
    return h(
      "figure",
      { class: "t-figure" },
      h("p", { class: "t-name" }, t("views.tokens.window")),
      windowBar(byRole, room ?? data.total, { limit: data.limit }),
      warned ? h("p", { class: "muted tiny" }, t("views.tokens.limit", { limit: data.limit })) : null,
      roles(data),
      h("p", { class: "t-name" }, t("views.tokens.messages")),
      windowBar(stretchesOf(data.items), 0, { over, choose: (stretch) => jump(stretch.start) }),
      h("figcaption", null, pointed),
    );
  }
}

/** @param {{start: number, stop: number, role: string | null, tokens: number}} stretch */
function saidOf({ start, stop, role, tokens }) {
  const who = role ? t(`views.role.${role}`) : t("views.tokens.mixed");
  const where = stop - start > 1 ? t("views.tokens.places", { first: String(start), last: String(stop - 1) }) : t("views.place", { index: String(start) });
  return t("views.tokens.stretch", { where, who, tokens });
}

/**
 * @param {any} data
 * @param {number | null} room
 */
function headline({ total, source }, room) {
  const share = room ? total / room : 0;
  const kind = share >= 1 ? "bad" : share >= 0.8 ? "warn" : "";
  return h(
    "div",
    { class: "t-head" },
    h("p", { class: "t-total" }, h("b", null, count(total)), " ", room ? t("views.tokens.of", { room }) : t("views.tokens.unit")),
    room ? h("span", { class: `chip ${kind}` }, t("views.tokens.share", { n: Math.round(share * 100) })) : null,
    h("p", { class: "muted small t-source" }, t(`views.tokens.source.${source}`)),
  );
}

/** @param {any} data */
function roles({ byRole, total }) {
  return h(
    "ul",
    { class: "t-roles", "aria-label": t("views.tokens.byRole") },
    ROLES.filter((role) => byRole[role]).map((role) =>
      h(
        "li",
        null,
        h("span", { class: `t-key ${role}`, "aria-hidden": "true" }),
        h("span", null, t(`views.role.${role}`)),
        h("b", null, short(byRole[role])),
        h("span", { class: "muted" }, t("views.percent", { n: Math.round((100 * byRole[role]) / Math.max(total, 1)) })),
      ),
    ),
  );
}

/**
 * What the next request would hold, and what it would leave for the answer.
 *
 * @param {any} data
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

/** The messages that take most, as buttons that lead to them: the bar for the keyboard. @param {any} data */
function largest({ items }) {
  const most = stretchesOf(items).sort((one, other) => other.tokens - one.tokens).slice(0, LARGEST);
  return h(
    "section",
    { class: "v-section" },
    h("h2", null, t("views.tokens.largest")),
    h(
      "ol",
      { class: "t-largest" },
      most.map((stretch) =>
        h(
          "li",
          null,
          h(
            "button",
            { type: "button", class: "plain", data: { focus: `at-${stretch.start}` }, onclick: () => jump(stretch.start) },
            h("span", { class: `t-key ${stretch.role ?? "mixed"}`, "aria-hidden": "true" }),
            h("span", { class: "grow" }, saidOf(stretch)),
            h("span", { class: "t-share", "aria-hidden": "true", vars: { "--share": `${(100 * stretch.tokens) / Math.max(most[0].tokens, 1)}%` } }),
          ),
        ),
      ),
    ),
  );
}

/** @param {any} used */
function usage(used) {
  const rows = ["input", "output", "reasoning", "cacheRead", "cacheWrite"];
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
          h("tbody", null, rows.map((name) => h("tr", null, h("th", { scope: "row" }, t(`views.usage.${name}`)), h("td", null, amount(used.last, name)), h("td", null, amount(used.total, name))))),
        )
      : h("p", { class: "muted" }, t("views.usage.none")),
    some ? h("p", { class: "small" }, cost(used.cost)) : null,
  );
}

/** @param {any} counts @param {string} name */
function amount(counts, name) {
  const value = { cacheRead: counts?.cache?.read, cacheWrite: counts?.cache?.write }[name] ?? counts?.[name];
  return typeof value === "number" ? count(value) : "–";
}

/** @param {number | null} value */
function cost(value) {
  if (typeof value !== "number") return t("views.usage.noCost");
  return t("views.usage.cost", { cost: `$${value.toFixed(value < 0.1 ? 4 : 2)}` });
}

customElements.define("pv-tokens", Tokens);
