/**
 * The command palette: every command, every view, every action on the message that has the focus, and
 * every conversation, by its name. A few letters in order are enough; the arrows choose, Enter does it.
 *
 * @typedef {object} Choice
 * @property {string} label
 * @property {string} [group]
 * @property {string} [icon]
 * @property {string} [keys]
 * @property {boolean} [danger]
 * @property {() => unknown} run
 * @property {number[]} [letters]  which letters of the label were typed
 */

import { api } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { keysOf } from "../core/keyboard.js";
import { actions, commands, isPossible, views } from "../core/registry.js";
import { go } from "../core/routes.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { fits, focusedTarget } from "../thread/message-actions.js";
import { visible } from "../thread/text.js";
import { attempt } from "./toast.js";

const PAUSE = 80;
/** How many conversations are offered. */
const MOST = 20;
const PAGE = 8;
/** Better than any place of letters. */
const WHOLE = 1000;

export class Palette extends HTMLElement {
  field = h("input", { type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list", oninput: () => this.#typed() });
  list = h("ul", { id: "palette-list", role: "listbox", class: "palette-list" });
  box = h(
    "dialog",
    { class: "dialog palette", "aria-label": t("palette"), onclose: () => this.remove(), onclick: (/** @type {Event} */ event) => event.target === this.box && this.box.close() },
    h("div", { class: "palette-field" }, icon("search"), this.field),
    this.list,
  );
  /** @type {Choice[]} */
  own = [];
  /** @type {Choice[]} */
  conversations = [];
  /** @type {Choice[]} those in the list, the best first */
  shown = [];
  at = 0;
  asked = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  timer = undefined;

  connectedCallback() {
    this.field.placeholder = t("palette.hint");
    this.field.setAttribute("aria-label", t("palette"));
    this.list.setAttribute("aria-label", t("palette"));
    this.own = ownChoices();
    this.box.addEventListener("keydown", (event) => this.#key(event));
    fill(this, this.box);
    this.box.showModal();
    this.field.focus();
    this.#draw();
    this.#ask();
  }

  disconnectedCallback() {
    clearTimeout(this.timer);
  }

  #typed() {
    this.at = 0;
    this.#draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#ask(), PAUSE);
  }

  /** Conversations are found on the server: there may be more than the list on the left has loaded. */
  async #ask() {
    const turn = ++this.asked;
    /** @type {import("../core/protocol.js").GetNames | undefined} */
    const found = await attempt(() => api.get("names", { query: { q: this.field.value.trim(), limit: MOST } }));
    if (!found || turn !== this.asked || !this.isConnected) return;
    this.conversations = found.items.map(({ id, name }) => ({
      label: name ?? t("conversation.untitled"),
      group: t("conversation"),
      icon: "right",
      run: () => go({ id, at: null }),
    }));
    this.#draw();
  }

  #draw() {
    const text = this.field.value.trim();
    const ranked = [...this.own, ...this.conversations].flatMap((choice) => {
      const found = matchLetters(choice.label, text);
      return found ? [{ ...choice, ...found }] : [];
    });
    this.shown = text ? ranked.sort((a, b) => b.score - a.score) : ranked;
    this.at = Math.max(0, Math.min(this.at, this.shown.length - 1));
    fill(
      this.list,
      ...this.shown.map((choice, index) => this.#row(choice, index)),
      this.shown.length ? null : h("li", { class: "empty small", role: "option", "aria-disabled": "true" }, t("sidebar.nothing")),
    );
    this.#mark();
  }

  /**
   * @param {Choice} choice
   * @param {number} index
   */
  #row({ label, group, icon: name, keys, danger, letters }, index) {
    return h(
      "li",
      { id: `palette-${index}`, role: "option", class: danger ? "danger-text" : null, onclick: () => this.#run(index), onpointermove: () => this.#choose(index) },
      icon(name ?? "blank"),
      h("span", { class: "clip" }, marked(label, letters ?? [])),
      h("span", { class: "grow muted tiny clip" }, group),
      keys ? h("span", { class: "palette-keys" }, ...keysOf(keys).map((key) => h("kbd", null, key))) : null,
    );
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.isComposing) return;
    const { length } = this.shown;
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: PAGE, PageUp: -PAGE }[event.key];
    const again = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
    if (by && length) this.#choose(Math.abs(by) === 1 ? (this.at + by + length) % length : Math.max(0, Math.min(this.at + by, length - 1)));
    else if (event.key === "Enter") this.#run(this.at);
    else if (again) this.box.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} index */
  #choose(index) {
    if (index === this.at) return;
    this.at = index;
    this.#mark();
  }

  #mark() {
    [...this.list.children].forEach((row, index) => row.setAttribute("aria-selected", String(index === this.at && this.shown.length > 0)));
    this.field.setAttribute("aria-activedescendant", this.shown.length ? `palette-${this.at}` : "");
    this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
  }

  /** Close first: the focus goes back to where it was, and the command may move it. @param {number} index */
  #run(index) {
    const choice = this.shown[index];
    if (!choice) return;
    this.box.close();
    choice.run();
  }
}

customElements.define("pv-palette", Palette);

/** Open the palette. */
export function openPalette() {
  if (!document.querySelector("pv-palette")) document.body.append(document.createElement("pv-palette"));
}

/** What can be done now. @returns {Choice[]} */
function ownChoices() {
  const { id, head, view } = get();
  const target = focusedTarget();
  const doable = target ? actions().filter((action) => fits(action, target)) : [];
  const possible = commands().filter((command) => !command.unlisted && isPossible(command));
  return [
    ...doable.map(({ label, icon: name, keys, danger, run }) => ({ label: t(label), group: t("keys.message"), icon: name, keys, danger, run: () => run(/** @type {any} */ (target)) })),
    ...(id ? views().filter(({ hidden }) => !hidden) : []).map(({ name, label, icon: picture, keys }) => ({ label: t(label), group: t("keys.panel"), icon: picture, keys, run: () => go({ view: view === name ? null : name }) })),
    ...possible.map(({ label, group, icon: name, keys, danger, run }) => ({ label: t(label), group: t(group), icon: name, keys, danger, run: () => run(head) })),
  ];
}

/**
 * Whether a label has some letters in this order; a higher score is a better match: the text in one
 * piece before letters here and there, at the beginning of a word before amid one.
 *
 * @param {string} label
 * @param {string} text
 * @returns {{score: number, letters: number[]} | null}
 */
export function matchLetters(label, text) {
  const [hay, needle] = [label.toLowerCase(), text.toLowerCase()];
  const at = hay.search(new RegExp(`(?<![\\p{L}\\p{N}])${needle.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}`, "u"));
  const begin = at >= 0 ? at : hay.indexOf(needle);
  if (begin >= 0) {
    const letters = Array.from({ length: needle.length }, (_, n) => begin + n);
    return { score: WHOLE * (at === 0 ? 3 : at > 0 ? 2 : 1) - begin, letters };
  }
  const letters = [];
  let from = 0;
  for (const letter of needle.replace(/\s+/g, "")) {
    const place = hay.indexOf(letter, from);
    if (place < 0) return null;
    letters.push(place);
    from = place + letter.length;
  }
  return { score: -(from - letters[0]), letters };
}

/**
 * A label with the letters that were typed.
 *
 * @param {string} label
 * @param {number[]} letters
 */
function marked(label, letters) {
  const wanted = new Set(letters);
  /** @type {(Node | string)[]} */
  const found = [];
  for (let at = 0; at < label.length; ) {
    let to = at + 1;
    while (to < label.length && wanted.has(to) === wanted.has(at)) to++;
    const piece = visible(label.slice(at, to));
    found.push(...(wanted.has(at) ? [h("mark", null, ...piece)] : piece));
    at = to;
  }
  return found;
}
