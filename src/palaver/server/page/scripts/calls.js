/**
 * What is becoming of the tool calls of the open conversation: the ledger's entries by call id,
 * read again whenever something moves. Once a call has its result in the log it leaves the ledger,
 * and its message tells the rest.
 *
 * @typedef {object} Entry
 * @property {string} id
 * @property {string} callID
 * @property {string} tool
 * @property {{status: string, [key: string]: any}} state
 * @property {string} [digest] what an approval names; only a call that waits has one
 */

import { api, url } from "./api.js";
import { live } from "./live.js";
import { get, watch } from "./state.js";

const NONE = { items: [] };

/** @type {Map<string, Entry>} */
let entries = new Map();
/** @type {Set<() => void>} */
const listeners = new Set();
let asked = 0;

/**
 * @param {string} callID
 * @returns {Entry | undefined}
 */
export function callOf(callID) {
  return entries.get(callID);
}

/** How many calls wait for somebody to say run or no. */
export function waiting() {
  return [...entries.values()].filter(({ state }) => state.status === "pending").length;
}

/**
 * Hear when a call moved; call what this returns to stop.
 *
 * @param {() => void} listener
 * @returns {() => void}
 */
export function onCalls(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * Run a waiting call, or refuse it; the model goes on when no other waits. The entry is the one that
 * was shown: where the call is another one by now, the server refuses and the ledger is read again.
 *
 * @param {Entry} entry
 * @param {"run" | "deny"} action
 */
export async function decide(entry, action) {
  const { id, model } = get();
  const { digest } = entry;
  const body = model ? { action, digest, model } : { action, digest };
  try {
    await api.post(url`conversations/${id}/calls/${entry.id}`, body);
  } finally {
    await read();
  }
}

/** Read the ledger. */
export async function read() {
  const { id } = get();
  const turn = ++asked;
  const { items: found } = id ? await api.get(url`conversations/${id}/calls`).catch(() => NONE) : NONE;
  if (turn !== asked) return; // asked again meanwhile
  entries = new Map(found.map((/** @type {Entry} */ one) => [one.callID, one]));
  listeners.forEach((listener) => listener());
}

/** Follow the open conversation from now on. */
export function followCalls() {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const soon = () => {
    timer ??= setTimeout(() => {
      timer = undefined;
      read();
    }, 30);
  };
  watch(["id", "head"], soon);
  for (const name of ["tool.pending", "tool.running", "tool.completed", "tool.error", "tool.progress", "step.ended"]) {
    live.on(name, ({ conversation }) => conversation === get().id && soon());
  }
}
