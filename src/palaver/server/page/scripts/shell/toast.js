/**
 * Short notices below the page, where they cover nothing. A notice disappears after a while unless it
 * has the pointer or the focus, and when the reader leaves the conversation that it is about. One of
 * a failure or with a button names its conversation, and shows what the server reported.
 *
 * @typedef {object} Notice
 * @property {string} text
 * @property {string} [detail]
 * @property {"info" | "error"} [kind]
 * @property {{label: string, run: () => void}} [action]
 * @property {null} [about]   null: it is not about the conversation that is open
 * @property {number} [stay]  milliseconds; 0 stays until it is closed
 */

import { api, Problem, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { get, nameOf, watch } from "../core/state.js";
import { onLanguage, t } from "../locales/locale.js";

const STAY = 6000;
const MOST = 4;

export class Toasts extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "region");
    onLanguage(() => this.setAttribute("aria-label", t("toast.region")));
    this.list = h("div", { class: "toasts", role: "log", "aria-live": "polite" });
    fill(this, this.list);
    watch(["id"], ({ id }) => {
      for (const toast of /** @type {HTMLElement[]} */ ([...(this.list?.children ?? [])])) {
        if (toast.dataset.about && toast.dataset.about !== id) toast.remove();
      }
    });
  }

  /** @param {Notice} notice */
  show({ text, detail, kind = "info", action, about: other, stay = kind === "error" ? STAY * 2 : STAY }) {
    const close = () => toast.remove();
    const { id, head } = other === null ? { id: null, head: null } : get();
    const about = head && (kind === "error" || action) ? (nameOf(head) ?? t("conversation.untitled")) : "";
    const toast = h(
      "div",
      { class: `toast ${kind}`, data: { about: id } },
      icon(kind === "error" ? "alert" : "check"),
      h("div", { class: "grow" }, about ? h("p", { class: "muted tiny clip" }, about) : null, h("p", null, text), detail ? h("p", { class: "muted" }, detail) : null),
      action
        ? h("button", { type: "button", class: "plain strong", onclick: () => (close(), action.run()) }, action.label)
        : null,
      h("button", { type: "button", class: "quiet", "aria-label": t("close"), onclick: close }, icon("x")),
    );
    this.list?.append(toast);
    while (this.list && this.list.children.length > MOST) this.list.firstElementChild?.remove();
    if (stay) expire(toast, stay);
  }
}

/**
 * @param {HTMLElement} toast
 * @param {number} stay
 */
function expire(toast, stay) {
  let timer = 0;
  const wait = () => (timer = setTimeout(() => toast.remove(), stay));
  for (const name of ["pointerenter", "focusin"]) toast.addEventListener(name, () => clearTimeout(timer));
  for (const name of ["pointerleave", "focusout"]) toast.addEventListener(name, wait);
  wait();
}

customElements.define("pv-toast", Toasts);

/** @param {Notice} notice */
export function notify(notice) {
  document.querySelector("pv-toast")?.show(notice);
}

/**
 * Show what went wrong. An abort is not an error.
 *
 * @param {unknown} error
 * @param {string} [text]  what was tried; "That didn't work" unless said
 */
export function failed(error, text) {
  if (error instanceof DOMException && error.name === "AbortError") return;
  if (!(error instanceof Problem)) {
    notify({ kind: "error", text: text ?? t("failed"), detail: String(error) });
    throw error;
  }
  if (error.status === 401) return; // the page asks for the token instead
  const detail = error.status === 0 ? t("failed.unreachable") : error.message;
  notify({ kind: "error", text: text ?? t("failed"), detail });
}

/**
 * Run something that may fail, and show the error.
 *
 * @template T
 * @param {() => Promise<T>} work
 * @param {string} [text]
 * @returns {Promise<T | undefined>}
 */
export async function attempt(work, text) {
  try {
    return await work();
  } catch (error) {
    failed(error, text);
    return undefined;
  }
}

/**
 * Show that an edit was made, with a button that undoes it.
 *
 * @param {string} text  "Deleted 3 messages"
 * @param {number | undefined} version  what the edit made: no later change is undone in its place
 * @param {string | null} [id]  of the conversation; the one on the screen unless said
 */
export function announceEdit(text, version, id = get().id) {
  const undo = () => attempt(() => api.post(url`conversations/${id}/undo`, {}, { version }));
  notify({ text, action: { label: t("undo"), run: undo } });
}
