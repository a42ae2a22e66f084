/**
 * The notes and scores on the messages of the open conversation, by the messages' ids. They are read
 * again when the conversation changes, here or elsewhere.
 *
 * @typedef {import("./protocol.js").GetConversationsAnnotations[number]} Annotation
 */

import { api, url } from "./api.js";
import { live } from "./live-events.js";
import { get, watch } from "./state.js";

const PAUSE = 50;

/** @type {Map<string, Annotation>} */
let annotations = new Map();
let asked = 0;

/**
 * @param {string} message  its id
 * @returns {Annotation | undefined}
 */
export function annotationOf(message) {
  return annotations.get(message);
}

/** All of them, in the order of the messages. */
export function allAnnotations() {
  return [...annotations.values()];
}

/**
 * Put a note and a score on a message; neither takes them away.
 *
 * @param {string} message  its id
 * @param {string} note
 * @param {number | null} score
 */
export async function annotate(message, note, score) {
  const { id } = get();
  await api.put(url`conversations/${id}/annotations`, { message, note, score });
  await read();
}

/**
 * What was noted of a message before, the newest first.
 *
 * @param {string} message  its id
 * @returns {Promise<Annotation[]>}
 */
export function versionsOf(message) {
  return api.get(url`conversations/${get().id}/annotations`, { query: { message } });
}

async function read() {
  const { id } = get();
  const turn = ++asked;
  /** @type {Annotation[]} */
  const found = id ? await api.get(url`conversations/${id}/annotations`).catch(() => []) : [];
  if (turn !== asked) return; // asked again meanwhile
  const before = annotations;
  annotations = new Map(found.map((one) => [one.message, one]));
  for (const row of document.querySelectorAll("pv-message")) {
    const message = row.item?.message.id ?? "";
    if (before.get(message)?.at !== annotations.get(message)?.at) row.redraw();
  }
}

/** Follow the notes of the open conversation from now on. */
export function followAnnotations() {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const soon = () => {
    timer ??= setTimeout(() => {
      timer = undefined;
      read();
    }, PAUSE);
  };
  watch(["id"], () => {
    annotations = new Map();
    read();
  });
  for (const name of /** @type {const} */ (["conversation.changed", "message.erased"])) {
    live.on(name, ({ conversation }) => conversation === get().id && soon());
  }
  live.on("resumed", soon);
  read();
}
