/**
 * The view of a team: its members, the queue of turns, who spoke to whom, and what a member would
 * see if its turn came now.
 *
 * @typedef {import("../core/protocol.js").GetConversationsTeam} Team
 * @typedef {import("../core/protocol.js").GetConversationsTeamMembersSees} Explained
 * @typedef {{team: Team, seen?: Explained, error?: unknown}} Loaded
 */

import { api, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { canWrite, get } from "../core/state.js";
import { count, t } from "../locales/locale.js";
import { attempt } from "../shell/toast.js";
import { contextReport } from "./agent-context.js";
import { empty, failure, PanelView } from "./panel-view.js";

/** The actions that are possible in each state. */
const WAYS = Object.freeze({
  idle: ["run"],
  waiting: [],
  running: ["pause", "cancel"],
  paused: ["resume", "cancel"],
});

/** @param {Team["state"]} state @param {Team["queue"]} queue @returns {keyof typeof WAYS} */
function stateOf({ running, paused, floor }, queue) {
  if (paused) return "paused";
  if (running) return "running";
  return floor && !queue.length ? "waiting" : "idle";
}

/** @extends {PanelView<Loaded>} */
export class TeamView extends PanelView {
  constructor() {
    super();
    /** @type {string | null} whose context is shown */
    this.member = null;
  }

  begin() {
    this.member = null;
    super.begin();
  }

  /** @param {AbortSignal} signal */
  async load(signal) {
    const path = url`conversations/${get().id}/team`;
    const team = await api.get(path, { signal });
    const seen = this.member ? await this.sees(this.member, signal) : null;
    return { team, ...seen };
  }

  /**
   * @param {string} name
   * @param {AbortSignal} [signal]
   */
  async sees(name, signal) {
    try {
      return { seen: await api.get(url`conversations/${get().id}/team/members/${name}/sees`, { signal }) };
    } catch (error) {
      if (signal?.aborted) throw error;
      return { error };
    }
  }

  /** @param {any} error */
  failed(error) {
    if (error?.status === 404) fill(this, noTeam());
    else super.failed(error);
  }

  /** @param {Loaded} data */
  render({ team, seen, error }) {
    if (!team.members?.length) {
      fill(this, noTeam());
      return;
    }
    const top = this.querySelector(".v-scroll")?.scrollTop ?? 0;
    const scroll = h(
      "div",
      { class: "v-scroll" },
      this.state(team),
      this.members(team),
      h("section", { class: "v-section" }, h("h2", null, t("views.team.queue")), queue(team)),
      h(
        "section",
        { class: "v-section" },
        h("h2", null, t("views.team.who")),
        team.spoke?.length ? spokeMatrix(team.spoke, team.members) : h("p", { class: "muted" }, t("views.team.silent")),
      ),
      team.task ? h("section", { class: "v-section" }, h("h2", null, t("views.team.task")), h("p", { class: "x-text" }, team.task)) : null,
      this.context(team, seen, error),
    );
    fill(this, scroll);
    scroll.scrollTop = top;
  }

  /** @param {Team} team */
  state({ state, members, queue: waiting, roster }) {
    const name = (/** @type {string} */ id) => members.find((member) => member.id === id)?.name ?? id;
    const now = stateOf(state, waiting);
    const says =
      now === "running" && state.begun
        ? t("views.team.speaking", { name: name(state.begun.member) })
        : now === "waiting"
          ? t("views.team.floor", { name: name(state.floor ?? ""), why: t(`views.team.why.${state.why}`) })
          : t(`views.team.says.${now}`);
    const ways = roster ? WAYS[now] : [];
    return h(
      "div",
      { class: "g-state" },
      h("span", { class: `chip ${now === "running" ? "accent" : now === "paused" ? "warn" : ""}` }, t(`views.team.state.${now}`)),
      h("p", { class: "grow", role: "status" }, says),
      canWrite()
        ? h(
            "div",
            { class: "row" },
            ways.map((way) =>
              h("button", { type: "button", data: { focus: `team-${way}` }, onclick: () => this.go(way) }, icon({ run: "play", resume: "play", pause: "pause", cancel: "stop" }[way] ?? "play"), t(`views.team.${way}`)),
            ),
          )
        : null,
    );
  }

  /** @param {Team} team */
  members({ members, state }) {
    return h(
      "section",
      { class: "v-section" },
      h("h2", null, t("views.team.members")),
      h("p", { class: "muted small" }, t("views.team.membersSay")),
      h(
        "ul",
        { class: "g-members" },
        members.map((member) =>
          h(
            "li",
            null,
            h(
              "button",
              { type: "button", class: "g-member", "aria-pressed": String(this.member === member.id), data: { focus: `member-${member.id}` }, onclick: () => this.look(member.id) },
              h("span", { class: state.begun?.member === member.id ? "dot busy" : "dot", "aria-hidden": "true" }),
              h("strong", null, member.name),
              h("span", { class: "muted" }, t(`views.team.kind.${member.kind}`), member.model ? ` · ${member.model}` : ""),
            ),
          ),
        ),
      ),
    );
  }

  /**
   * @param {Team} team
   * @param {Explained | undefined} seen
   * @param {any} error
   */
  context(team, seen, error) {
    if (!this.member) return null;
    const member = team.members.find((each) => each.id === this.member);
    return h(
      "section",
      { class: "v-section g-sight", "aria-live": "polite", tabindex: "-1" },
      h("h2", null, t("views.team.sees", { name: member?.name ?? this.member })),
      error ? failure(error) : seen ? contextReport(seen) : h("p", { class: "muted" }, t("views.loading")),
    );
  }

  /** @param {string} id */
  async look(id) {
    this.member = this.member === id ? null : id;
    if (this.data) this.data = { team: this.data.team };
    this.draw();
    if (!this.member) return;
    await this.reload();
    this.querySelector(".g-sight")?.scrollIntoView({ block: "nearest" });
  }

  /** @param {string} way */
  async go(way) {
    const path = (/** @type {string} */ name) => url`conversations/${get().id}/team/${name}`;
    await attempt(async () => {
      await api.post(path(way));
      // turns may begin again; those who wait are given theirs
      if (way === "resume" && this.data?.team.queue.length) await api.post(path("run"));
    });
    this.soon();
  }
}

/** @param {Team} team */
function queue({ queue: waiting, members }) {
  if (!waiting?.length) return h("p", { class: "muted" }, t("views.team.nobody"));
  const name = (/** @type {string} */ id) => members.find((member) => member.id === id)?.name ?? id;
  return h(
    "ol",
    { class: "g-queue" },
    waiting.map((turn) => h("li", null, h("span", null, name(turn.member)), h("span", { class: "chip", title: t("views.team.priority") }, `P${turn.priority ?? 2}`))),
  );
}

/** Shown when the conversation has no team: how to start one. */
function noTeam() {
  return empty(t("views.team.none"), t("views.team.noneHint"), h("pre", { class: "x-prompt", tabindex: "0" }, "palaver serve --team team.yaml"));
}

const SHADES = 4;

/** Who is addressed when nobody is named; nobody speaks as all. */
const ALL = "all";

/**
 * Who spoke to whom, as a table: a row for who spoke, a column for who was addressed, and a shade
 * for how often. A table can be read on a phone and by a screen reader.
 *
 * @param {import("../core/protocol.js").GetConversationsTeam["spoke"]} spoke
 * @param {{id: string, name: string}[]} members
 */
function spokeMatrix(spoke, members) {
  const names = new Map(members.map(({ id, name }) => [id, name]));
  const seen = new Set(spoke.flatMap(({ from, to }) => [from, to]));
  const everyone = [...members.map(({ id }) => id), ...[...seen].filter((id) => !names.has(id))];
  const most = Math.max(1, ...spoke.map((each) => each.count));
  const counts = new Map(spoke.map(({ from, to, count: times }) => [`${from}\n${to}`, times]));
  const called = (/** @type {string} */ id) => names.get(id) ?? (id === ALL ? t("views.team.all") : id);
  const cell = (/** @type {string} */ from, /** @type {string} */ to) => {
    const times = counts.get(`${from}\n${to}`) ?? 0;
    const shade = times ? Math.ceil((SHADES * times) / most) : 0;
    return h(
      "td",
      { class: `m-cell shade-${shade}`, title: times ? t("views.team.spoke", { from: called(from), to: called(to), n: times }) : null },
      times ? count(times) : h("span", { class: "only-spoken" }, "0"),
    );
  };
  return h(
    "div",
    { class: "m-scroll", tabindex: "0", role: "region", "aria-label": t("views.team.matrix") },
    h(
      "table",
      { class: "m-table" },
      h("caption", { class: "only-spoken" }, t("views.team.matrix")),
      h("thead", null, h("tr", null, h("th", { scope: "col", class: "m-corner" }, t("views.team.fromTo")), everyone.map((id) => h("th", { scope: "col" }, h("span", { class: "clip" }, called(id)))))),
      h("tbody", null, everyone.filter((id) => id !== ALL).map((from) => h("tr", null, h("th", { scope: "row" }, h("span", { class: "clip" }, called(from))), everyone.map((to) => cell(from, to))))),
    ),
  );
}

customElements.define("pv-team", TeamView);
