/**
 * Redraws a part of the page without disturbing the reader. The focus moves to the new element that
 * corresponds to the focused one. While the pointer is pressed, the redraw waits for its release,
 * since a button that is replaced between press and release is never clicked.
 */

/** The longest wait, in milliseconds: the release after dragging a scrollbar fires no event. */
const LONGEST_PRESS = 2000;

/** The parts that wait for the release, with their draw functions. @type {Map<HTMLElement, () => void>} */
const waiting = new Map();
let pressed = false;
let timer = 0;

addEventListener("pointerdown", press, true);
addEventListener("pointerup", () => setTimeout(release), true);
addEventListener("pointercancel", () => setTimeout(release), true);
// what a click does may draw at once; what waited comes after it
addEventListener("click", () => (pressed = false), true);

function press() {
  pressed = true;
  clearTimeout(timer);
  timer = setTimeout(release, LONGEST_PRESS);
}

function release() {
  clearTimeout(timer);
  pressed = false;
  const draws = [...waiting];
  waiting.clear();
  for (const [root, draw] of draws) if (root.isConnected) redraw(root, draw);
}

/**
 * Draw a part, now or when the pointer is released.
 *
 * @param {HTMLElement} root
 * @param {() => void} draw
 */
export function redraw(root, draw) {
  if (pressed) {
    waiting.set(root, draw);
    return;
  }
  waiting.delete(root);
  const held = /** @type {HTMLElement | null} */ (document.activeElement);
  const name = held && root.contains(held) ? looksOf(held) : null;
  draw();
  if (name === null || !held || root.contains(document.activeElement)) return;
  const all = /** @type {HTMLElement[]} */ ([...root.querySelectorAll(held.tagName)]);
  all.find((one) => looksOf(one) === name)?.focus({ preventScroll: true });
}

/** @param {HTMLElement} element */
function looksOf(element) {
  if (element.dataset.focus) return element.dataset.focus;
  const row = /** @type {HTMLElement | null} */ (element.closest("[data-id]"));
  const label = element.getAttribute("aria-label") ?? element.textContent;
  return [row?.dataset.id, element.getAttribute("href") ?? label].join("|");
}
