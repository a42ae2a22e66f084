/** Which model answers next. */

import { get } from "./state.js";

/**
 * The model that will answer: the one chosen, or the server's default.
 *
 * @returns {any}
 */
export function chosenModel() {
  const { info, model } = get();
  const known = info?.models ?? [];
  const named = known.find((/** @type {any} */ one) => one.name === model);
  return named ?? known.find((/** @type {any} */ one) => one.isDefault) ?? known[0];
}
