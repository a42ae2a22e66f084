/**
 * The alternatives to the messages of the open conversation: other answers to the same question, and
 * other wordings of it. The server finds them in the versions and forks, so nothing is stored for
 * them; to choose one is to restore its version, or to open its conversation.
 *
 * @typedef {import("../core/protocol.js").GetConversationsAlternatives["items"][number]} Place
 * @typedef {import("../core/api.js").Item} Item
 */

import { api, url } from "../core/api.js";
import { h, icon } from "../core/dom.js";
import { refresh } from "../core/open-conversation.js";
import { registerAction } from "../core/registry.js";
import { go, revealMessage } from "../core/routes.js";
import { canWrite, get, set, watch } from "../core/state.js";
import { t } from "../locales/locale.js";
import { attempt } from "../shell/toast.js";
import { versionShown } from "./message-actions.js";

/** @type {Map<number, Place>} by the index of the message */
let places = new Map();
/** @type {Set<() => void>} */
const listeners = new Set();
let asked = 0;

/**
 * The alternatives to a message, with its own place among them; undefined if it has none.
 *
 * @param {Item | undefined} item
 * @returns {Place | undefined}
 */
export function alternativesTo(item) {
  const place = item && get().viewing === null ? places.get(item.index) : undefined;
  return place?.items[place.current].message === item?.message.id ? place : undefined;
}

/**
 * Call a listener when the alternatives change. Returns a function that unsubscribes.
 *
 * @param {() => void} listener
 * @returns {() => void}
 */
export function onAlternatives(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Read the alternatives of the open conversation. */
export async function readAlternatives() {
  const { id } = get();
  const turn = ++asked;
  /** @type {{items: Place[]}} */
  const { items } = id ? await api.get(url`conversations/${id}/alternatives`).catch(() => ({ items: [] })) : { items: [] };
  if (turn !== asked) return; // asked again meanwhile
  places = new Map(items.map((place) => [place.index, place]));
  listeners.forEach((listener) => listener());
}

/** Read the alternatives of the open conversation from now on. */
export function followAlternatives() {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const soon = () => {
    timer ??= setTimeout(() => {
      timer = undefined;
      readAlternatives();
    }, 60);
  };
  watch(["id", "head"], soon);
}

/**
 * The alternatives to a message, as a number between two arrows: ‹ 2/3 ›.
 *
 * @param {Item} item
 * @returns {HTMLElement | null}
 */
export function alternativesBar(item) {
  const place = alternativesTo(item);
  if (!place) return null;
  const { current, items } = place;
  const arrow = (/** @type {number} */ by, /** @type {string} */ name) => {
    const other = items[current + by];
    const label = t(by < 0 ? "alternative.previous" : "alternative.next");
    return h(
      "button",
      {
        type: "button",
        class: "quiet",
        "aria-label": label,
        title: other?.model ? `${label} · ${other.model}` : label,
        disabled: !other || !mayChoose(item, by),
        data: { focus: `alternative ${by}` },
        onclick: () => choose(item, by),
      },
      icon(name),
    );
  };
  const count = h("span", { class: "mono", title: t("alternative.of", { n: current + 1, all: items.length }) }, `${current + 1}/${items.length}`);
  return h("span", { class: "alternatives tiny muted", role: "group", "aria-label": t("alternative.of", { n: current + 1, all: items.length }) }, arrow(-1, "left"), count, arrow(1, "right"));
}

/**
 * Whether an alternative can be chosen now: one of another conversation can be looked at any time.
 *
 * @param {Item} item
 * @param {number} by
 */
function mayChoose(item, by) {
  const place = alternativesTo(item);
  const other = place?.items[place.current + by];
  return Boolean(other) && (other?.conversation !== get().id || (canWrite() && !get().stepping));
}

/**
 * Have another alternative in the place of a message.
 *
 * @param {Item} item
 * @param {number} by  1 for the next, -1 for the one before
 */
async function choose(item, by) {
  const place = alternativesTo(item);
  const other = place?.items[place.current + by];
  if (!place || !other) return;
  const { id } = get();
  if (other.conversation !== id) {
    go({ id: other.conversation, at: null });
    revealMessage(place.index);
  } else {
    const version = versionShown(item);
    const done = await attempt(() => api.post(url`conversations/${id}/restore`, { version: other.version }, { version }));
    if (done === undefined) return;
    await refresh();
    await readAlternatives();
    set({ focus: place.index });
  }
  const spoken = document.getElementById("spoken");
  if (spoken) spoken.textContent = t("alternative.of", { n: place.current + by + 1, all: place.items.length });
}

for (const by of [-1, 1]) {
  registerAction(by < 0 ? "previous-alternative" : "next-alternative", {
    label: by < 0 ? "alternative.previous" : "alternative.next",
    icon: by < 0 ? "left" : "right",
    keys: by < 0 ? "h" : "l",
    writes: false,
    when: ({ item }) => mayChoose(item, by),
    run: ({ item }) => choose(item, by),
  });
}
