/**
 * The keyboard map. A key or a sequence of two keys (`g h`) runs one action. The help dialog lists
 * the same table. While the reader types in a field, only the bindings marked with `typing` are
 * active. `Mod+k` is Ctrl-K, on a Mac also ⌘K; it is active in fields too.
 *
 * @typedef {object} Binding
 * @property {string} keys          "j", "g h", "Escape", "Mod+k"
 * @property {string} label         the key of a text
 * @property {string} group         the key of a text: where the help lists it
 * @property {(event: KeyboardEvent) => unknown} run
 * @property {() => boolean} [when]      used only while this answers true
 * @property {boolean} [typing]     used in text fields too
 */

/** How long the second key of a sequence may take. */
const PATIENCE = 2000;

/** @type {Binding[]} */
const bindings = [];
let first = "";
let firstAt = 0;

/**
 * Bind a key. Returns a function that removes the binding.
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
 * All bindings, for the help dialog.
 *
 * @returns {readonly Binding[]}
 */
export function keyMap() {
  return bindings;
}

/** Whether the modifier of shortcuts is ⌘. */
const APPLE = /Mac|iPhone|iPad/.test(navigator.platform);
const SHOWN = { Escape: "Esc", ArrowUp: "↑", ArrowDown: "↓", Enter: "↵" };

/**
 * The keys of a binding, each as it is written on the keyboard.
 *
 *     keysOf("Mod+k")  // ["Ctrl", "K"]
 *
 * @param {string} keys
 * @returns {string[]}
 */
export function keysOf(keys) {
  if (keys.startsWith("Mod+")) return [APPLE ? "⌘" : "Ctrl", keys.slice(4).toUpperCase()];
  return keys.split(" ").map((key) => SHOWN[/** @type {keyof typeof SHOWN} */ (key)] ?? key);
}

/** Start listening to the keyboard. */
export function listen() {
  document.addEventListener("keydown", receive);
}

/** @param {KeyboardEvent} event */
function receive(event) {
  if (event.defaultPrevented || event.isComposing || event.altKey) return;
  if (event.ctrlKey || event.metaKey) {
    const found = event.shiftKey ? undefined : match(`Mod+${event.key.toLowerCase()}`, false);
    if (!found) return;
    event.preventDefault();
    found.run(event);
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
