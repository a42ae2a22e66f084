/**
 * The sidebar: the conversations, the latest change first, with their activity; the search; and the
 * settings.
 *
 * @typedef {import("../core/api.js").Head} Head
 */

import { api } from "../core/api.js";
import { asset, fill, h, icon } from "../core/dom.js";
import { live } from "../core/live-events.js";
import { redraw } from "../core/redraw.js";
import { views } from "../core/registry.js";
import { format } from "../core/routes.js";
import { canWrite, get, nameOf, watch } from "../core/state.js";
import { ago, onLanguage, t } from "../locales/locale.js";
import { visible } from "../thread/text.js";
import { begin, emptyTrash, entriesOf } from "./conversation-actions.js";
import { ConversationRows } from "./conversation-rows.js";
import { chooseImport } from "./found-transcripts.js";
import { openMenu } from "./menu.js";
import { Search } from "./search.js";
import { openSettings } from "./settings.js";
import { failed } from "./toast.js";

const PAGE = 50;
/** The least time between two reads of the list, in milliseconds. */
const CALM = 150;
/** How many pinned conversations are shown above the others. */
const MOST_PINNED = 100;
/** How many titles a search looks through. */
const SEARCHED = 1000;

const ICONS = { archived: "archive", trashed: "trash" };

/** The view that stays open in another conversation: one that is about all of it. */
function openView() {
  const { view } = get();
  return view && views().some(({ name, hidden }) => name === view && !hidden) ? view : null;
}

export class Sidebar extends HTMLElement {
  /** @type {(() => void)[]} */
  subscriptions = [];
  /** @type {Map<string, Head>} */
  heads = new Map();
  /** @type {string | null} where the next page begins */
  next = null;
  /** The tag that the list is limited to. */
  tag = "";
  /** The owner that the list is limited to. */
  owner = "";
  /** Which conversations are listed. @type {Head["status"]} */
  status = "active";
  list = h("div", { class: "conversations" });
  rows = new ConversationRows(this.list, (head) => this.#row(head));
  search = new Search(() => this.#list());
  // entries of the end that was drawn before may come first
  more = new IntersectionObserver((entries) => this.next && entries.some((entry) => entry.isIntersecting) && this.#load(this.next));
  loading = false;
  /** Whether the list changed while it was read. */
  stale = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  timer = undefined;
  clock = 0;

  connectedCallback() {
    const again = () => this.#soon();
    document.addEventListener("pv-conversations", again);
    this.subscriptions = [
      watch(["id", "view"], () => this.#list()),
      watch(["info"], () => this.#draw()),
      onLanguage(() => this.#draw()),
      live.on("conversation.changed", again),
      live.on("conversation.deleted", ({ id }) => (this.heads.delete(String(id)), this.#list())),
      live.on("step.started", again),
      live.on("step.ended", again),
      live.on("resumed", again),
      () => document.removeEventListener("pv-conversations", again),
    ];
    this.setAttribute("role", "complementary");
    this.addEventListener("keydown", (event) => this.#walk(event));
    this.#draw();
    this.#load(null);
    this.clock = setInterval(() => this.#list(), 60_000);
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
    this.more.disconnect();
    clearInterval(this.clock);
  }

  /** Put the cursor into the search. */
  find() {
    document.querySelector("pv-app")?.toggleAttribute("data-drawer", true);
    this.querySelector("input")?.focus();
  }

  /** The arrows lead from the search into the list, and up and down in it. @param {KeyboardEvent} event */
  #walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const stops = /** @type {HTMLElement[]} */ ([...this.querySelectorAll("input.search, .conversation > a, .conversation.hit > button")]);
    const here = stops.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    if (here < 0) return;
    event.preventDefault();
    stops[Math.min(Math.max(here + step, 0), stops.length - 1)].focus();
  }

  #draw() {
    this.setAttribute("aria-label", t("sidebar.label"));
    const field = h("input", {
      type: "search",
      class: "search",
      value: this.search.text,
      placeholder: t("sidebar.search"),
      "aria-label": t("sidebar.search"),
      oninput: (/** @type {Event} */ event) => this.search.type(/** @type {HTMLInputElement} */ (event.target).value),
      onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && /** @type {HTMLElement} */ (event.target).blur(),
    });
    this.list = h("div", { class: "conversations", tabindex: -1 });
    this.rows = new ConversationRows(this.list, (head) => this.#row(head));
    const fresh = h("button", { type: "button", class: "primary new", title: t("sidebar.new"), onclick: begin }, icon("plus"), t("sidebar.new"));
    const bring = h("button", { type: "button", class: "quiet", title: t("import"), "aria-label": t("import"), "aria-haspopup": get().info?.discovers ? "menu" : null, onclick: (/** @type {Event} */ event) => chooseImport(/** @type {HTMLElement} */ (event.currentTarget)) }, icon("upload"));
    fill(
      this,
      h("div", { class: "sidebar-head" }, h("a", { class: "brand", href: "#/" }, h("img", { src: asset("icons/palaver.svg"), alt: "", width: 22, height: 22 }), "palaver"), canWrite() ? h("div", { class: "row" }, bring, fresh) : null),
      h("div", { class: "sidebar-search" }, icon("search"), field),
      h("nav", { "aria-label": t("sidebar.label") }, this.list),
      h("div", { class: "sidebar-foot" }, this.#settings(), h("span", { class: "muted tiny grow" }, get().info?.version ?? ""), this.#toggle("archived"), this.#toggle("trashed")),
    );
    this.#list();
  }

  /** @param {"archived" | "trashed"} status */
  #toggle(status) {
    const on = this.status === status;
    return h("button", { type: "button", class: "quiet", "aria-label": t(`sidebar.${status}`), title: t(`sidebar.${status}`), "aria-pressed": String(on), onclick: () => this.show(on ? "active" : status) }, icon(ICONS[status]));
  }

  #settings() {
    return h(
      "button",
      { type: "button", class: "plain", "aria-haspopup": "menu", "aria-expanded": "false", onclick: (/** @type {Event} */ event) => openSettings(/** @type {HTMLElement} */ (event.currentTarget)) },
      icon("settings"),
      t("settings"),
    );
  }

  /** @param {string | null} after */
  async #load(after) {
    if (this.loading) {
      this.stale ||= after === null; // it changed while it was read: once more, then
      return;
    }
    this.loading = true;
    const next = this.next;
    this.next = null;
    try {
      const query = { status: this.status, tag: this.tag || null, owner: this.owner || null };
      const apart = this.status === "active";
      const page = await api.get("conversations", { query: { ...query, limit: PAGE, after, pinned: apart ? false : null } });
      const pinned = apart && after === null ? await api.get("conversations", { query: { ...query, limit: MOST_PINNED, pinned: true } }) : { items: [] };
      if (after === null) this.#forget(page.items);
      for (const head of [...pinned.items, ...page.items]) this.heads.set(head.id, head);
      // read again from the top, the list still goes on where it went on before
      this.next = after !== null || this.heads.size <= PAGE ? page.next : next;
    } catch (error) {
      if (after === null) this.next = next; // a page that failed is not asked for again by itself
      failed(error, t("sidebar.failed"));
    }
    this.loading = false;
    this.#list();
    if (this.stale) this.#soon();
    this.stale = false;
  }

  /** Remove conversations that should be on the first page and are not: they were deleted. @param {Head[]} first */
  #forget(first) {
    const oldest = first.length < PAGE ? 0 : (first.at(-1)?.updated ?? 0);
    for (const [id, head] of this.heads) {
      if (head.updated > oldest || first.length < PAGE || head.pinned) this.heads.delete(id);
    }
  }

  #soon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.#load(null);
    }, CALM);
  }

  #list() {
    const { list, search } = this;
    const all = [...this.heads.values()].sort((a, b) => b.updated - a.updated);
    const shown = all.filter((head) => search.fits(head));
    const apart = (/** @type {Head} */ { pinned }) => pinned && this.status === "active";
    const [pinned, others] = [shown.filter(apart), shown.filter((head) => !apart(head))];
    const { found } = search;
    this.more.disconnect();
    // a search reads on through the titles, but not without end
    const end = this.next && (!search.text || all.length < SEARCHED) ? h("div", { class: "sentinel" }) : null;
    const { rows } = this;
    const parts = [
      this.tag ? h("button", { type: "button", class: "chip accent", onclick: () => this.#only("", this.owner) }, this.tag, icon("x")) : null,
      this.owner ? h("button", { type: "button", class: "chip accent", onclick: () => this.#only(this.tag, "") }, "@", visible(this.owner), icon("x")) : null,
      this.#place(shown.length),
      pinned.length ? [h("h2", { class: "group" }, icon("pin"), t("sidebar.pinned")), h("ul", null, ...pinned.map((head) => this.#row(head)))] : null,
      rows.element,
      search.text && found.length ? [h("h2", { class: "group" }, t("sidebar.found")), h("ul", null, ...found.map((hit) => search.row(hit)))] : null,
      !shown.length && !found.length ? h("p", { class: "empty small" }, t(search.text ? "sidebar.nothing" : `sidebar.none.${this.status}`)) : null,
      end,
    ];
    redraw(list, () => {
      const top = list.scrollTop;
      rows.show(others, Boolean(this.next));
      fill(list, ...parts);
      list.scrollTop = top;
      rows.measure();
      if (end) this.more.observe(end);
    });
  }

  /** @param {string} tag @param {string} owner */
  #only(tag, owner) {
    this.tag = tag;
    this.owner = owner;
    this.#again();
  }

  /** List the conversations in use, or those in the archive or the trash. @param {Head["status"]} status */
  show(status) {
    document.querySelector("pv-app")?.toggleAttribute("data-drawer", true);
    this.status = status;
    this.#draw();
    this.#again();
  }

  /** Read the list from the top; what it shows now is another one's. */
  #again() {
    this.heads.clear();
    this.next = null;
    this.#load(null);
  }

  /** Where the reader is, if not among the conversations in use, and the way back. @param {number} count */
  #place(count) {
    if (this.status === "active") return null;
    const back = h("button", { type: "button", class: "quiet", "aria-label": t("sidebar.back"), title: t("sidebar.back"), onclick: () => this.show("active") }, icon("x"));
    const empty = this.status === "trashed" && count && canWrite() ? h("button", { type: "button", onclick: emptyTrash }, t("trash.empty")) : null;
    return h("div", { class: "row sidebar-place" }, icon(ICONS[this.status]), h("h2", { class: "grow" }, t(`sidebar.${this.status}`)), empty, back);
  }

  /** The tags and the owner, each with what it limits the list to. @param {Head} head */
  #chips({ tags, owner }) {
    const chip = (/** @type {any} */ text, /** @type {string} */ label, /** @type {() => void} */ onclick) =>
      h("button", { type: "button", class: "chip tag", "aria-label": label, onclick }, text);
    return [
      ...tags.map((tag) => chip(tag, t("sidebar.only", { tag }), () => this.#only(tag, this.owner))),
      owner ? chip(["@", visible(owner)], t("sidebar.owner", { owner }), () => this.#only(this.tag, owner)) : null,
    ];
  }

  /** @param {Head} head */
  #row(head) {
    const here = head.id === get().id;
    const title = nameOf(head) ?? t("conversation.untitled");
    const { stepping, waiting } = head.state ?? { stepping: false, waiting: 0 };
    const menu = (/** @type {Event} */ event) => openMenu(/** @type {HTMLElement} */ (event.currentTarget), entriesOf(head));
    return h(
      "li",
      { class: "conversation", data: { id: head.id } },
      h(
        "a",
        { href: format({ id: head.id, view: openView() }), "aria-current": here ? "page" : null, onclick: () => document.querySelector("pv-app")?.removeAttribute("data-drawer") },
        h(
          "span",
          { class: "row" },
          stepping ? h("span", { class: "dot busy", title: t("sidebar.busy") }) : null,
          head.parent ? icon("fork") : null,
          h("span", { class: "name clip grow" }, visible(title)),
          h("time", { class: "muted tiny", datetime: new Date(head.updated).toISOString() }, ago(head.updated)),
        ),
        h(
          "span",
          { class: "row muted tiny" },
          h("span", { class: "clip grow" }, nameOf(head) && head.preview ? visible(head.preview) : t("head.messages", { n: head.length })),
          waiting ? h("span", { class: "chip warn" }, t("sidebar.waiting", { n: waiting })) : null,
        ),
      ),
      head.tags.length || head.owner ? h("div", { class: "tags" }, ...this.#chips(head)) : null,
      h("button", { type: "button", class: "quiet row-menu", "aria-label": t("sidebar.menu", { name: title }), "aria-haspopup": "menu", "aria-expanded": "false", onclick: menu }, icon("more")),
    );
  }
}

customElements.define("pv-sidebar", Sidebar);
