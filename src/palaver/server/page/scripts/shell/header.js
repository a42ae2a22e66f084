/**
 * The header of the thread: the conversation's title, the version that is shown, and the way back
 * from an older one.
 */

import { api, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { redraw } from "../core/redraw.js";
import { viewNamed, views } from "../core/registry.js";
import { go } from "../core/routes.js";
import { canWrite, get, nameOf, watch } from "../core/state.js";
import { count, onLanguage, t } from "../locales/locale.js";
import { visible } from "../thread/text.js";
import { rename, retag } from "./conversation-actions.js";
import { attempt } from "./toast.js";

export class Header extends HTMLElement {
  /** @type {(() => void)[]} */
  subscriptions = [];

  connectedCallback() {
    const draw = () => redraw(this, () => this.#draw());
    this.subscriptions = [watch(["head", "viewing", "view", "info"], draw), onLanguage(draw)];
    this.#draw();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
  }

  #draw() {
    const { head, viewing } = get();
    document.title = head ? `${nameOf(head) ?? t("conversation.untitled")} · palaver` : "palaver";
    fill(
      this,
      h(
        "header",
        { class: "thread-head" },
        button("menu", t("sidebar.open"), () => document.querySelector("pv-app")?.toggleAttribute("data-drawer"), "drawer-button"),
        head ? this.#title(head) : h("span", { class: "grow" }),
        head ? this.#tools() : null,
      ),
      head && viewing !== null ? past(head, viewing) : null,
    );
  }

  /** @param {import("../core/api.js").Head} head */
  #title(head) {
    const title = nameOf(head) ?? t("conversation.untitled");
    const { viewing } = get();
    const facts =
      viewing === null
        ? [t("head.messages", { n: head.length }), t("head.version", { n: count(head.version) })]
        : [t("head.version.of", { n: count(viewing), newest: count(head.version) })];
    return h(
      "div",
      { class: "grow title" },
      h(
        "h1",
        { class: "clip" },
        canWrite() ? h("button", { type: "button", class: "plain title-button clip", title: t("conversation.rename"), onclick: () => rename(head) }, visible(title)) : visible(title),
      ),
      h(
        "p",
        { class: "muted tiny row" },
        h("span", { class: "clip" }, facts.join(" · ")),
        head.status === "active" ? null : h("span", { class: "chip warn" }, icon(head.status === "trashed" ? "trash" : "archive"), t(`sidebar.${head.status}`)),
        head.tags.map((tag) => h("button", { type: "button", class: "chip tag", onclick: () => retag(head), disabled: !canWrite() }, tag)),
        canWrite() ? null : h("span", { class: "chip warn" }, icon("lock"), t("head.readonly")),
      ),
    );
  }

  #tools() {
    const { id, view, head } = get();
    const back = (/** @type {string} */ what) => () => attempt(() => api.post(url`conversations/${id}/${what}`));
    const writes = canWrite() && get().viewing === null;
    const last = views().find(({ hidden }) => !hidden)?.name ?? null;
    return h(
      "div",
      { class: "row head-tools" },
      button("search", t("find"), () => document.querySelector("pv-find")?.open()),
      writes ? button("undo", t("undo"), back("undo"), "", undefined, head?.canUndo === false) : null,
      writes ? button("redo", t("redo"), back("redo"), "", undefined, head?.canRedo === false) : null,
      last ? button("panel", t("panel.toggle"), () => go({ view: view && viewNamed(view) ? null : last }), "", view !== null) : null,
    );
  }
}

/**
 * @param {import("../core/api.js").Head} head
 * @param {number} viewing
 */
function past(head, viewing) {
  const { id } = get();
  const restore = async () => {
    const done = await attempt(() => api.post(url`conversations/${id}/restore`, { version: viewing }));
    if (done !== undefined) go({ at: null });
  };
  return h(
    "div",
    { class: "notice", role: "status" },
    icon("history"),
    h("span", { class: "grow" }, t("past.notice", { n: count(viewing), newest: count(head.version) })),
    canWrite() ? h("button", { type: "button", onclick: restore }, icon("undo"), t("past.restore")) : null,
    h("button", { type: "button", class: "primary", onclick: () => go({ at: null }) }, t("past.now")),
  );
}

/**
 * @param {string} name
 * @param {string} label
 * @param {() => void} run
 * @param {string} [more]
 * @param {boolean} [pressed]
 * @param {boolean} [disabled]
 */
function button(name, label, run, more = "", pressed, disabled = false) {
  const state = pressed === undefined ? null : String(pressed);
  return h("button", { type: "button", class: `quiet ${more}`, "aria-label": label, title: label, "aria-pressed": state, disabled, onclick: run }, icon(name));
}

customElements.define("pv-head", Header);
