/**
 * In the conversation of a team, the part of the chat box that says as whom a human speaks and to
 * whom, whose turn it is and who waits. What is said goes through the team's coordinator.
 *
 * @typedef {import("../core/protocol.js").GetConversationsTeam} Team
 */

import { api, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { live } from "../core/live-events.js";
import { redraw } from "../core/redraw.js";
import { get, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";

/** The tag of conversations that have a team. */
const TAG = "team";
const SOON = 60;

export class TeamBox extends HTMLElement {
  /** @type {Team | null} the team of the open conversation, if it has one */
  team = null;
  /** @type {string | null} the human as whom the reader chose to speak */
  speaker = null;
  /** @type {string} the member that is spoken to; "" leaves it to the team */
  addressee = "";
  /** @type {(() => void)[]} */
  subscriptions = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  timer = undefined;

  connectedCallback() {
    this.classList.add("team-box");
    this.hidden = true;
    const soon = () => {
      this.timer ??= setTimeout(() => this.#load(), SOON);
    };
    this.subscriptions = [
      watch(["id"], () => this.#forget()),
      watch(["head", "stepping"], soon),
      live.on("team.turn", soon),
      onLanguage(() => this.#draw()),
    ];
    soon();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
    clearTimeout(this.timer);
  }

  /** The members who are people. */
  get humans() {
    return (this.team?.members ?? []).filter(({ kind }) => kind === "human");
  }

  /** As whom the reader speaks: the one who was chosen, who has the floor, or who spoke last. */
  get as() {
    const { floor, human } = this.team?.state ?? {};
    const wanted = [this.speaker, floor, human].find((id) => this.humans.some((one) => one.id === id));
    return wanted ?? this.humans[0]?.id ?? null;
  }

  /**
   * Say something to the team and let it take its turns; without a text, only let it.
   *
   * @param {string} id
   * @param {string} text
   */
  async send(id, text) {
    const path = url`conversations/${id}/team`;
    if (!text.trim()) return api.post(`${path}/run`);
    const to = this.addressee ? `\n\n[NEXT: ${this.addressee}]` : "";
    return api.post(`${path}/say`, { text: text + to, as: this.as, run: true });
  }

  #forget() {
    [this.team, this.speaker, this.addressee] = [null, null, ""];
    this.#draw();
  }

  async #load() {
    clearTimeout(this.timer);
    this.timer = undefined;
    const { id, head } = get();
    if (!id || !head?.tags.includes(TAG)) return;
    /** @type {Team | null} */
    const team = await api.get(url`conversations/${id}/team`).catch(() => null);
    if (id !== get().id || !team) return;
    this.team = team.roster && team.members.some(({ kind }) => kind === "human") ? team : null;
    this.#draw();
  }

  #draw() {
    const { team } = this;
    const was = this.hidden;
    this.hidden = team === null;
    if (was !== this.hidden) this.dispatchEvent(new CustomEvent("pv-team", { bubbles: true }));
    redraw(this, () => (team ? fill(this, this.#who(team), turn(team)) : fill(this)));
  }

  /** @param {Team} team */
  #who({ members }) {
    const others = members.filter(({ id }) => id !== this.as).map(({ id, name }) => [id, name]);
    return h(
      "div",
      { class: "row" },
      choice(t("team.as"), this.humans.map(({ id, name }) => [id, name]), this.as ?? "", (value) => {
        this.speaker = value;
        if (this.addressee === value) this.addressee = "";
        this.#draw();
      }),
      choice(t("team.to"), [["", t("team.everyone")], ...others], this.addressee, (value) => (this.addressee = value)),
    );
  }
}

/** Whose turn it is, and who waits. @param {Team} team */
function turn({ state, queue, members }) {
  const name = (/** @type {string} */ id) => members.find((member) => member.id === id)?.name ?? id;
  const says = state.paused
    ? t("team.paused")
    : state.begun
      ? t("team.speaks", { name: name(state.begun.member) })
      : state.floor
        ? t("team.floor", { name: name(state.floor) })
        : t("team.yours");
  const waiting = queue.length ? t("team.queue", { names: queue.map(({ member }) => name(member)).join(", ") }) : "";
  return h("p", { class: "muted small", role: "status" }, icon("team"), [says, waiting].filter(Boolean).join(" · "));
}

/**
 * @param {string} label
 * @param {string[][]} options
 * @param {string} value
 * @param {(value: string) => void} put
 */
function choice(label, options, value, put) {
  return h(
    "label",
    { class: "row small" },
    h("span", { class: "muted" }, label),
    h(
      "select",
      { "aria-label": label, data: { focus: label }, onchange: (/** @type {any} */ event) => put(event.target.value) },
      options.map(([id, name]) => h("option", { value: id, selected: id === value }, name)),
    ),
  );
}

customElements.define("pv-team-box", TeamBox);
