/**
 * A newcomer's first minute with the example: five things worth trying, and which of them were done.
 * Doing them ticks them off, wherever they are done; the browser remembers it.
 *
 * @typedef {"ask" | "call" | "cut" | "back" | "explain"} Step
 */

import { live } from "./live.js";
import { go } from "./routes.js";
import { canWrite, get, watch } from "./state.js";

/** @type {readonly Step[]} */
export const STEPS = Object.freeze(["ask", "call", "cut", "back", "explain"]);
/** Conversations of the example, by the ids that `server/seed.py` gives them. */
export const START = "start-here";
export const TEAM = "review-team";

const KEPT = "palaver.minute";
/** Which event tells that a step was done. @type {Record<string, Step>} */
const TOLD = {
  "step.ended": "ask",
  "tool.completed": "call",
  "history.edited": "cut",
  "history.rolled_back": "back",
};

/** @type {{done: Step[], hidden: boolean}} */
let kept = { done: [], hidden: false };
/** @type {Set<() => void>} */
const listeners = new Set();

/** Whether the example is in this store, and somebody may try things with it. */
export function isOffered() {
  const { info } = get();
  return canWrite() && (info?.teams ?? []).some((/** @type {any} */ team) => team.conversation === TEAM);
}

/** Whether the guide belongs on the screen: somebody wants it, and what is open is of the example. */
export function isWanted() {
  const { id, head } = get();
  return !kept.hidden && isOffered() && (id === null || id === START || Boolean(head?.tags.includes("example")));
}

/** @param {Step} step */
export function isDone(step) {
  return kept.done.includes(step);
}

/** The first step that was not done yet. @returns {Step | undefined} */
export function next() {
  return STEPS.find((step) => !isDone(step));
}

/** Put the guide away, for good. */
export function hide() {
  keep({ ...kept, hidden: true });
}

/**
 * Hear when a step was done or the guide was put away; call what this returns to stop.
 *
 * @param {() => void} listener
 * @returns {() => void}
 */
export function onMinute(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Follow what is done from now on. Whoever comes for the first time begins where it begins. */
export function followMinute() {
  const known = localStorage.getItem(KEPT);
  kept = { done: [], hidden: false, ...read(known) };
  for (const [name, step] of Object.entries(TOLD)) {
    live.on(name, ({ conversation, outcome }) => conversation === get().id && outcome !== "failed" && done(step));
  }
  // the head of another conversation comes after its view
  watch(["view", "head"], ({ view }) => view === "explain" && done("explain"));
  if (known !== null || !isOffered()) return;
  keep(kept);
  if (get().id === null) go({ id: START }, { replace: true });
}

/** @param {Step} step */
function done(step) {
  if (isWanted() && !isDone(step)) keep({ ...kept, done: [...kept.done, step] });
}

/** @param {typeof kept} now */
function keep(now) {
  kept = now;
  localStorage.setItem(KEPT, JSON.stringify(kept));
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
