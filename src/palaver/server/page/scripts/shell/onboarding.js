/**
 * The steps of the guide for newcomers, and which of them are done. A step counts as done wherever
 * the reader does it; the browser stores the progress.
 *
 * @typedef {"ask" | "call" | "cut" | "back" | "explain"} Step
 */

import { live } from "../core/live-events.js";
import { go } from "../core/routes.js";
import { canWrite, get, watch } from "../core/state.js";

/** @type {readonly Step[]} */
export const STEPS = Object.freeze(["ask", "call", "cut", "back", "explain"]);
/** The ids of the server's demo conversations. */
export const START = "start-here";
export const TEAM = "review-team";

const STORAGE_KEY = "palaver.minute";
/** Where a window is so wide, the history is beside the conversation from the start. */
const ROOMY = "(min-width: 1101px)";
/** The event after which a step counts as done. @type {[import("../core/protocol.js").EventName, Step][]} */
const STEP_EVENTS = [
  ["step.ended", "ask"],
  ["tool.completed", "call"],
  ["history.edited", "cut"],
  ["history.rolled_back", "back"],
];

/** @type {{done: Step[], hidden: boolean}} */
let progress = { done: [], hidden: false };
/** The version before the last edit of the first demo conversation. @type {number | null} */
let before = null;
/** The open conversation, and the version that it had when it was opened. @type {{id: string, version: number} | null} */
let opened = null;
/** @type {Set<() => void>} */
const listeners = new Set();

/** Whether the store has the demo conversations and may be changed. */
export function isOffered() {
  const { info } = get();
  return canWrite() && (info?.teams ?? []).some((team) => team.conversation === TEAM);
}

/** Whether the guide is shown: it was not hidden, and a demo conversation or none is open. */
export function isWanted() {
  const { id, head } = get();
  return !progress.hidden && isOffered() && (id === null || id === START || Boolean(head?.tags.includes("example")));
}

/** @param {Step} step */
export function isDone(step) {
  return progress.done.includes(step);
}

/** The first step that was not done yet. @returns {Step | undefined} */
export function next() {
  return STEPS.find((step) => !isDone(step));
}

/** The version to go back to in the first demo conversation. */
export function versionBefore() {
  return before ?? Math.max((get().head?.version ?? 0) - 1, 0);
}

/** Open the first demo conversation, with its history beside it where there is room. @param {{replace?: boolean}} [how] */
export function openStart(how) {
  go({ id: START, view: matchMedia(ROOMY).matches ? "history" : null, at: null }, how);
}

/** Hide the guide for good. */
export function hide() {
  save({ ...progress, hidden: true });
}

/**
 * Call a listener when a step is done or the guide is hidden. Returns a function that unsubscribes.
 *
 * @param {() => void} listener
 * @returns {() => void}
 */
export function onOnboarding(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Mark steps as done from now on. On the first visit, open the first demo conversation. */
export function followOnboarding() {
  const known = localStorage.getItem(STORAGE_KEY);
  progress = { done: [], hidden: false, ...read(known) };
  for (const [name, step] of STEP_EVENTS) {
    live.on(name, ({ conversation, outcome, version }) => isNew(conversation, version) && outcome !== "failed" && done(step));
  }
  watch(["id", "head"], ({ id, head }) => {
    if (head && head.id === id && opened?.id !== id) opened = { id, version: head.version };
  });
  live.on("history.edited", ({ conversation, version }) => {
    if (conversation === START && version) before = version - 1;
  });
  // the head of another conversation comes after its view
  watch(["view", "head"], ({ view }) => view === "explain" && done("explain"));
  if (known !== null || !isOffered()) return;
  save(progress);
  if (get().id === null) openStart({ replace: true });
}

/**
 * Whether something happened in the open conversation since it was opened. What is told late of how the
 * examples were written is no deed of the reader's.
 *
 * @param {string | undefined} conversation
 * @param {number | undefined} version
 */
function isNew(conversation, version) {
  return conversation === get().id && opened?.id === conversation && (version ?? Infinity) > opened.version;
}

/** @param {Step} step */
function done(step) {
  if (isWanted() && !isDone(step)) save({ ...progress, done: [...progress.done, step] });
}

/** @param {typeof progress} now */
function save(now) {
  progress = now;
  localStorage.setItem(STORAGE_KEY, JSON.stringify(progress));
  listeners.forEach((listener) => listener());
}

/** @param {string | null} text */
function read(text) {
  try {
    return JSON.parse(text ?? "{}");
  } catch {
    return {};
  }
}
