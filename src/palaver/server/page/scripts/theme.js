/** Light, dark, or as the system has it: the reader's choice, kept in the browser. */

/** @typedef {"system" | "light" | "dark"} Theme */

const KEPT = "palaver.theme";

/** @returns {Theme} */
export function theme() {
  const kept = localStorage.getItem(KEPT);
  return kept === "light" || kept === "dark" ? kept : "system";
}

/** @param {Theme} name */
export function chooseTheme(name) {
  localStorage.setItem(KEPT, name);
  apply();
}

function apply() {
  document.documentElement.dataset.theme = theme();
}

apply();
