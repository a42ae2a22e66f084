/**
 * The open tool calls of the conversation, by the ids of their parts, and the tools that need no further approval in
 * it. They are read from the ledger again after
 * every event about a call. A call leaves the ledger when its result is in the log.
 *
 * @typedef {import("./protocol.js").GetConversationsCalls["items"][number]} Entry
 * @typedef {import("./protocol.js").GetConversationsCalls["allowed"][number]} Allowed
 * @typedef {{action: "run", arguments?: Record<string, any>, always?: boolean} | {action: "deny", reason?: string}} Verdict
 */

import { api, url } from "./api.js";
import { live } from "./live-events.js";
import { get, watch } from "./state.js";

/** @type {{items: Entry[], allowed: Allowed[]}} */
const NONE = { items: [], allowed: [] };
/** The events after which the calls are read again. @type {readonly import("./protocol.js").EventName[]} */
const FOLLOWED = Object.freeze(["tool.pending", "tool.running", "tool.completed", "tool.error", "tool.progress", "step.ended"]);

/** @type {Map<string, Entry>} */
let entries = new Map();
/** @type {Allowed[]} */
let allowed = [];
/** @type {Set<() => void>} */
const listeners = new Set();
let asked = 0;

/**
 * The state of a call by the id of its part: some models use a callID again and again.
 *
 * @param {string} id
 * @returns {Entry | undefined}
 */
export function callOf(id) {
  return entries.get(id);
}

/**
 * Who approved a tool for the whole conversation; undefined if nobody did.
 *
 * @param {string} tool
 */
export function allowedTool(tool) {
  return allowed.find((one) => one.tool === tool);
}

/**
 * Have the calls of a tool wait for approval again.
 *
 * @param {string} tool
 */
export async function withdraw(tool) {
  await api.delete(url`conversations/${get().id}/allowed/${tool}`);
  await read();
}

/** The number of calls that wait for approval. */
export function waiting() {
  return [...entries.values()].filter(({ state }) => state.status === "pending").length;
}

/**
 * Call a listener when the calls change. Returns a function that unsubscribes.
 *
 * @param {() => void} listener
 * @returns {() => void}
 */
export function onCalls(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * Run a waiting call, perhaps with other arguments, or refuse it; the model goes on when no other
 * waits. The entry is the one that was shown: where the call is another one by now, the server refuses and the ledger is read again.
 *
 * @param {Entry} entry
 * @param {Verdict} verdict
 */
export async function decide(entry, verdict) {
  const { id, model } = get();
  const { digest } = entry;
  const body = { ...verdict, digest, ...(model ? { model } : {}) };
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
  /** @type {{items: Entry[], allowed: Allowed[]}} */
  const { items: found, allowed: granted } = id ? await api.get(url`conversations/${id}/calls`).catch(() => NONE) : NONE;
  if (turn !== asked) return; // asked again meanwhile
  entries = new Map(found.map((one) => [one.id, one]));
  allowed = granted;
  listeners.forEach((listener) => listener());
}

/** Read the calls of the open conversation from now on. */
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
  for (const name of FOLLOWED) {
    live.on(name, ({ conversation }) => conversation === get().id && soon());
  }
}
