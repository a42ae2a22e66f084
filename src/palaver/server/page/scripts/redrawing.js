/**
 * Drawing a part of the page anew under the hands of whoever uses it. The keyboard stays: the
 * element that had the focus and the one that looks like it afterwards are the same to a reader.
 * So does the pointer: a button that went away between press and release would never be clicked,
 * so a drawing waits for the release.
 */

/** How long a drawing waits at most: the release after dragging a scrollbar is never heard. */
const LONGEST_PRESS = 2000;

/** The parts that wait, with what draws them. @type {Map<HTMLElement, () => void>} */
const waiting = new Map();
let pressed = false;
let timer = 0;

addEventListener("pointerdown", press, true);
addEventListener("pointerup", () => setTimeout(letGo), true);
addEventListener("pointercancel", () => setTimeout(letGo), true);
// what a click does may draw at once; what waited comes after it
addEventListener("click", () => (pressed = false), true);

function press() {
  pressed = true;
  clearTimeout(timer);
  timer = setTimeout(letGo, LONGEST_PRESS);
}

function letGo() {
  clearTimeout(timer);
  pressed = false;
  const draws = [...waiting];
  waiting.clear();
  for (const [root, draw] of draws) if (root.isConnected) redraw(root, draw);
}

/**
 * Draw a part, now or when the pointer is let go.
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
