/**
 * The registry of panel views and message actions. A module registers what it offers when it is
 * loaded; the shell shows everything that is registered.
 *
 * @typedef {object} View
 * @property {string} name      its name in the address
 * @property {string} label     the key of a text
 * @property {string} element   the tag that is put into the panel; it reads `state`
 * @property {() => Promise<unknown>} load   the module that defines it
 * @property {string} [icon]
 * @property {boolean} [hidden] has an address but no tab (diff)
 * @property {string} [keys]    the keys that open it ("g h")
 *
 * @typedef {object} Target     the messages that an action is about
 * @property {number} start     index of the first
 * @property {number} stop      index after the last
 * @property {import("./api.js").Item} item   the first, or the one that has the focus
 *
 * @typedef {object} Action
 * @property {string} name
 * @property {string} label     the key of a text
 * @property {string} [icon]
 * @property {string} [keys]    the key that does it ("e")
 * @property {boolean} [danger]
 * @property {boolean} [writes] hidden where nothing may be changed; true unless said
 * @property {boolean} [many]   works on a range too
 * @property {boolean} [quick]  also a button beside the message, not only in its menu
 * @property {(target: Target) => boolean} [when]
 * @property {(target: Target) => void} run
 */

/** @type {Map<string, View>} */
const registered = new Map();
/** @type {Map<string, Action>} */
const registeredActions = new Map();

/**
 * Add a view to the panel.
 *
 * @param {string} name
 * @param {Omit<View, "name">} view
 */
export function registerView(name, view) {
  registered.set(name, { name, ...view });
}

/** All views, in the order of registration. */
export function views() {
  return [...registered.values()];
}

/** @param {string} name */
export function viewNamed(name) {
  return registered.get(name);
}

/**
 * Add an action on messages.
 *
 * @param {string} name
 * @param {Omit<Action, "name">} action
 */
export function registerAction(name, action) {
  registeredActions.set(name, { name, ...action });
}

/** All actions, in the order of registration. */
export function actions() {
  return [...registeredActions.values()];
}

/** @param {string} name */
export function actionNamed(name) {
  return registeredActions.get(name);
}
