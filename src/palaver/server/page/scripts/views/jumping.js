/** From a view to a message in the thread. */

import { go } from "../routes.js";

/** Below this the panel lies over the thread (styles/narrow.css). */
const OVER = "(max-width: 1100px)";

/** Whether the panel hides the thread. */
export const coversThread = () => matchMedia(OVER).matches;

/**
 * Show a message; a panel that lies over it goes.
 *
 * @param {number} index
 */
export function jump(index) {
  if (coversThread()) go({ view: null });
  document.dispatchEvent(new CustomEvent("pv:jump", { detail: { index } }));
}
