/**
 * A team at work: its members and what they are about, who waits, who spoke to whom, and for any
 * member what it would see if its turn came now.
 */

import { api, url } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { attempt } from "../pv-toast.js";
import { canWrite, get } from "../state.js";
import { t } from "../words.js";
import { empty, Pane, trouble } from "./pane.js";
import { sight } from "./sight.js";
import { spokeMatrix } from "./spoke_matrix.js";

/** What may be done in which state. */
const WAYS = Object.freeze({
  idle: ["run"],
  waiting: [],
  running: ["pause", "cancel"],
  paused: ["resume", "cancel"],
});

/** @param {any} state @param {any[]} queue @returns {keyof typeof WAYS} */
function stateOf({ running, paused, floor }, queue) {
  if (paused) return "paused";
  if (running) return "running";
  return floor && !queue.length ? "waiting" : "idle";
}

/** @extends {Pane<any>} */
class Team extends Pane {
  constructor() {
    super();
    /** @type {string | null} whose sight is open */
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

  /** @param {any} data */
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
      this.sight(team, seen, error),
    );
    fill(this, scroll);
    scroll.scrollTop = top;
  }

  /** @param {any} team */
  state({ state, members, queue: waiting, roster }) {
    const name = (/** @type {string} */ id) => members.find((/** @type {any} */ member) => member.id === id)?.name ?? id;
    const now = stateOf(state, waiting);
    const says =
      now === "running" && state.begun
        ? t("views.team.speaking", { name: name(state.begun.member) })
        : now === "waiting"
          ? t("views.team.floor", { name: name(state.floor), why: t(`views.team.why.${state.why}`) })
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

  /** @param {any} team */
  members({ members, state }) {
    return h(
      "section",
      { class: "v-section" },
      h("h2", null, t("views.team.members")),
      h("p", { class: "muted small" }, t("views.team.membersSay")),
      h(
        "ul",
        { class: "g-members" },
        members.map((/** @type {any} */ member) =>
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
   * @param {any} team
   * @param {any} seen
   * @param {any} error
   */
  sight(team, seen, error) {
    if (!this.member) return null;
    const member = team.members.find((/** @type {any} */ each) => each.id === this.member);
    return h(
      "section",
      { class: "v-section g-sight", "aria-live": "polite", tabindex: "-1" },
      h("h2", null, t("views.team.sees", { name: member?.name ?? this.member })),
      error ? trouble(error) : seen ? sight(seen) : h("p", { class: "muted" }, t("views.loading")),
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

/** @param {any} team */
function queue({ queue: waiting, members }) {
  if (!waiting?.length) return h("p", { class: "muted" }, t("views.team.nobody"));
  const name = (/** @type {string} */ id) => members.find((/** @type {any} */ member) => member.id === id)?.name ?? id;
  return h(
    "ol",
    { class: "g-queue" },
    waiting.map((/** @type {any} */ turn) => h("li", null, h("span", null, name(turn.member)), h("span", { class: "chip", title: t("views.team.priority") }, `P${turn.priority ?? 2}`))),
  );
}

/** No team works here, and how one comes about. */
function noTeam() {
  return empty(t("views.team.none"), t("views.team.noneHint"), h("pre", { class: "x-prompt", tabindex: "0" }, "palaver serve --team team.yaml"));
}

customElements.define("pv-team", Team);
