/**
 * What the page is about right now, in one place. Parts of the page read it, change it with `set`
 * and hear of changes with `watch`; they never reach into each other.
 *
 * @typedef {import("./api.js").Head} Head
 *
 * @typedef {object} State
 * @property {string | null} id           the conversation that is open
 * @property {Head | null} head           what is known of it; `head.version` is the newest version
 * @property {number | null} viewing      an older version that is looked at, or null for now
 * @property {string | null} view         the panel that is open ("history", "tokens", …)
 * @property {string | null} detail       what follows the view in the address ("3..7" of diff/3..7)
 * @property {number | null} focus        the index of the message that the keyboard is on
 * @property {{start: number, stop: number} | null} selection  chosen messages, stop not included
 * @property {string | null} model        the model chosen for the next step; null is the default
 * @property {boolean} stepping           whether a step runs here
 * @property {number} edits               rises when more than appends happened to the conversation
 * @property {any} info                   what the server said of itself (GET info)
 */

/** @type {State} */
const state = {
  id: null,
  head: null,
  viewing: null,
  view: null,
  detail: null,
  focus: null,
  selection: null,
  model: null,
  stepping: false,
  edits: 0,
  info: null,
};

/** @type {Set<{keys: Set<string>, listener: (state: Readonly<State>) => void}>} */
const watchers = new Set();

/**
 * The state as it is.
 *
 * @returns {Readonly<State>}
 */
export function get() {
  return state;
}

/**
 * Change some of it. Those who watch a key that changed are told once, after all of it changed.
 *
 * @param {Partial<State>} changes
 */
export function set(changes) {
  const changed = Object.keys(changes).filter((key) => state[key] !== changes[key]);
  if (!changed.length) return;
  Object.assign(state, changes);
  for (const { keys, listener } of [...watchers]) {
    if (changed.some((key) => keys.has(key))) listener(state);
  }
}

/**
 * Hear of changes of some keys; call what this returns to stop.
 *
 *     disconnected = watch(["id", "viewing"], ({ id, viewing }) => this.show(id, viewing));
 *
 * @param {(keyof State)[]} keys
 * @param {(state: Readonly<State>) => void} listener
 * @returns {() => void}
 */
export function watch(keys, listener) {
  const watcher = { keys: new Set(keys), listener };
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/**
 * Whether anything may be changed: the server writes, and we look at now and not at the past.
 *
 * @returns {boolean}
 */
export function canWrite() {
  return !state.info?.readOnly;
}

/**
 * The version that is on the screen.
 *
 * @returns {number | null}
 */
export function shownVersion() {
  return state.viewing ?? state.head?.version ?? null;
}
