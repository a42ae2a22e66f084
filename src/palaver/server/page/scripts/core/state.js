/**
 * The state of the page, in one object. The parts of the page read it with `get`, change it with
 * `set` and subscribe with `watch`; they do not call each other.
 *
 * @typedef {import("./api.js").Head} Head
 * @typedef {NonNullable<Head["settings"]>} Settings
 *
 * @typedef {object} Failure
 * @property {string} detail    the reason
 * @property {boolean} stored   whether what was said is stored: the model only has to be asked again
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
 * @property {boolean} tools              whether the model may call tools where the conversation does not say
 * @property {Settings | null} settings   those of the conversation, the same object until they change
 * @property {boolean} stepping           whether a step runs here
 * @property {Record<string, Failure>} failures  the last step of a conversation, where it failed
 * @property {number} edits               rises when more than appends happened to the conversation
 * @property {import("./protocol.js").GetInfo | null} info  what the server said of itself
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
  tools: true,
  settings: null,
  stepping: false,
  failures: {},
  edits: 0,
  info: null,
};

/** @type {Set<{keys: Set<keyof State>, listener: (state: Readonly<State>) => void}>} */
const watchers = new Set();

/**
 * The current state.
 *
 * @returns {Readonly<State>}
 */
export function get() {
  return state;
}

/**
 * Change some keys. Each watcher of a changed key is called once, after all of them changed.
 *
 * @param {Partial<State>} changes
 */
export function set(changes) {
  const keys = /** @type {(keyof State)[]} */ (Object.keys(changes));
  const changed = keys.filter((key) => state[key] !== changes[key]);
  if (!changed.length) return;
  Object.assign(state, changes);
  for (const watcher of [...watchers]) {
    if (changed.some((key) => watcher.keys.has(key))) watcher.listener(state);
  }
}

/**
 * Call a listener when one of some keys changes. Returns a function that unsubscribes.
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
 * Whether the server accepts changes.
 *
 * @returns {boolean}
 */
export function canWrite() {
  return !state.info?.readOnly;
}

/**
 * The version that is shown.
 *
 * @returns {number | null}
 */
export function shownVersion() {
  return state.viewing ?? state.head?.version ?? null;
}

/**
 * What a conversation is called.
 *
 * @param {Head} head
 * @returns {string | undefined}
 */
export function nameOf({ title, name }) {
  return title || name || undefined;
}

/** The model that will answer: the one that the reader chose, or the server's default. */
export function chosenModel() {
  const known = state.info?.models ?? [];
  const named = known.find(({ name }) => name === state.model);
  return named ?? known.find(({ isDefault }) => isDefault) ?? known[0];
}

/**
 * The tools that the next step may use: all, none, or some by name.
 *
 * @returns {boolean | string[]}
 */
export function allowedTools() {
  return state.settings?.tools ?? state.tools;
}

/** The model that comes with palaver: it proves the plumbing, not cleverness. */
const SMALL = "local:smollm2";

/** Whether a model is the very small one. @param {{name: string} | undefined} model */
export function isSmall(model) {
  return model?.name === SMALL;
}
