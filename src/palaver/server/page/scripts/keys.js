/**
 * The keyboard map. A key or a sequence of two (`g h`) does one thing, and the same table is what
 * `?` shows, so the help can't be wrong. While the reader types in a field only keys that say so
 * are heard.
 *
 * @typedef {object} Binding
 * @property {string} keys          "j", "g h", "Escape", "Shift+?"
 * @property {string} label         a key of the words
 * @property {string} group         a key of the words: where the help lists it
 * @property {(event: KeyboardEvent) => void} run
 * @property {() => boolean} [when]      heard only while this says so
 * @property {boolean} [typing]     heard in fields too
 */

/** How long the second key of a sequence may take. */
const PATIENCE = 1200;

/** @type {Binding[]} */
const bindings = [];
let first = "";
let firstAt = 0;

/**
 * Give a key its meaning; call what this returns to take it back.
 *
 * @param {Binding} binding
 * @returns {() => void}
 */
export function bind(binding) {
  bindings.push(binding);
  return () => {
    const at = bindings.indexOf(binding);
    if (at >= 0) bindings.splice(at, 1);
  };
}

/**
 * The map as it is, for the help.
 *
 * @returns {readonly Binding[]}
 */
export function keyMap() {
  return bindings;
}

/** Begin to listen. */
export function listen() {
  document.addEventListener("keydown", heard);
}

/** @param {KeyboardEvent} event */
function heard(event) {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const typing = isField(event.target);
  const now = Date.now();
  const sequence = first && now - firstAt < PATIENCE ? `${first} ${event.key}` : "";
  first = "";
  const found = (sequence && match(sequence, typing)) || match(event.key, typing);
  if (found) {
    event.preventDefault();
    found.run(event);
  } else if (!typing && bindings.some(({ keys }) => keys.startsWith(`${event.key} `))) {
    [first, firstAt] = [event.key, now];
  }
}

/**
 * @param {string} keys
 * @param {boolean} typing
 */
function match(keys, typing) {
  // a dialog takes the keyboard for itself
  const modal = document.querySelector("dialog[open]") !== null;
  return bindings.findLast(
    (one) => one.keys === keys && (!typing || one.typing) && !modal && (!one.when || one.when()),
  );
}

/** @param {EventTarget | null} target */
function isField(target) {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches("input:not([type=checkbox]), textarea, select"))
  );
}
