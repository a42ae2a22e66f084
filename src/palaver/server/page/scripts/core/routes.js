/**
 * The address of the page. It names the conversation (`#/c/{id}`), a view of the panel after it,
 * and an older version (`?at=12`). To navigate is to change the address; the state is read from it.
 *
 * @typedef {object} Place
 * @property {string | null} id
 * @property {string | null} view
 * @property {string | null} detail
 * @property {number | null} at
 */

import { get, set } from "./state.js";

/**
 * Read an address.
 *
 * @param {string} hash
 * @returns {Place}
 */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const [, kind, id, view, ...rest] = path.split("/");
  if (kind !== "c" || !id) return { id: null, view: null, detail: null, at: null };
  const at = new URLSearchParams(query).get("at") ?? "";
  return {
    id: decoded(id),
    view: view || null,
    detail: rest.length ? decoded(rest.join("/")) : null,
    at: /^\d+$/.test(at) ? Number(at) : null,
  };
}

/**
 * Write an address.
 *
 * @param {Partial<Place>} place
 * @returns {string}
 */
export function format({ id, view, detail, at }) {
  if (!id) return "#/";
  const path = [id, view, view ? detail : null].filter((step) => !!step).map((step) => encodeURIComponent(String(step)));
  return `#/c/${path.join("/")}${at === null || at === undefined ? "" : `?at=${at}`}`;
}

/**
 * Navigate. What `changes` leaves out stays.
 *
 *     go({ view: "diff", detail: "3..7" });
 *     go({ at: 12 });
 *
 * @param {Partial<Place>} changes
 * @param {{replace?: boolean}} [options]
 */
export function go(changes, { replace = false } = {}) {
  const { id, view, detail, viewing } = get();
  const here = { id, view, detail, at: viewing };
  // another conversation is seen as it is now; another view starts without a detail
  if (changes.id !== undefined && changes.id !== id) here.at = null;
  if (changes.view !== undefined && changes.view !== view) here.detail = null;
  const address = format({ ...here, ...changes });
  if (address === location.hash) return;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  follow();
}

/** Read the state from the address. */
export function follow() {
  const { id, view, detail, at } = parse(location.hash);
  const moved = id !== get().id;
  set({
    id,
    view,
    detail,
    viewing: at,
    ...(moved ? { head: null, settings: null, focus: null, selection: null, stepping: false } : {}),
  });
}

/** Follow the address from now on, also through the browser's back and forward. */
export function watchAddress() {
  window.addEventListener("popstate", follow);
  follow();
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The widths at which the panel covers the thread (styles/narrow.css). */
const OVER = "(max-width: 1100px)";

/** Whether the panel hides the thread. */
export const coversThread = () => matchMedia(OVER).matches;

/**
 * Scroll the thread to a message, now or as soon as the messages have arrived.
 *
 * @param {number} index
 */
export function revealMessage(index) {
  document.dispatchEvent(new CustomEvent("pv-jump", { detail: { index } }));
}

/**
 * Show a message from a view of the panel; a panel that covers the thread is closed.
 *
 * @param {number} index
 */
export function jump(index) {
  if (coversThread()) go({ view: null });
  revealMessage(index);
}
