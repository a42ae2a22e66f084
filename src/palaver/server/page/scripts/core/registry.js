/**
 * The registry of panel views, message actions and commands. A module registers what it offers when
 * it is loaded; menus, the keyboard and the command palette show everything that is registered.
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
 *
 * @typedef {object} Command    what the page does, apart from messages
 * @property {string} name
 * @property {string} label     the key of a text
 * @property {string} group     the key of a text: where the help and the palette list it
 * @property {string} [icon]
 * @property {string} [keys]    the keys that do it ("n", "Mod+k")
 * @property {"conversation" | "settings"} [menu]  the menu that has it
 * @property {boolean} [danger]
 * @property {boolean} [writes] hidden where nothing may be changed; false unless said
 * @property {boolean} [open]   only while a conversation is open
 * @property {boolean} [unlisted]  not in the palette: of use only as a key
 * @property {() => boolean} [checked]  makes it one of several to choose from
 * @property {(head: Head | null) => boolean} [when]
 * @property {(head: Head | null) => unknown} run  with the conversation it is about: the open one, or
 *   the one whose menu it was chosen from
 *
 * @typedef {import("./api.js").Head} Head
 */

import { canWrite, get } from "./state.js";

/** @type {Map<string, View>} */
const registered = new Map();
/** @type {Map<string, Action>} */
const registeredActions = new Map();
/** @type {Map<string, Command>} */
const registeredCommands = new Map();

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

/**
 * Add a command.
 *
 * @param {string} name
 * @param {Omit<Command, "name">} command
 */
export function registerCommand(name, command) {
  registeredCommands.set(name, { name, ...command });
}

/** All commands, in the order of registration. */
export function commands() {
  return [...registeredCommands.values()];
}

/**
 * Whether a command can be given now.
 *
 * @param {Command} command
 * @param {Head | null} [head]  the conversation that it would be about; the open one unless said
 */
export function isPossible(command, head = get().head) {
  if (command.writes && !canWrite()) return false;
  if (command.open && get().id === null) return false;
  if (command.menu === "conversation" && head === null) return false;
  return !command.when || command.when(head);
}
