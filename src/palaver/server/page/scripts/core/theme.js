/** The colour scheme: light, dark, or the system's. The choice is stored in the browser. */

/** @typedef {"system" | "light" | "dark"} Theme */

const STORAGE_KEY = "palaver.theme";

/** @returns {Theme} */
export function theme() {
  const stored = localStorage.getItem(STORAGE_KEY);
  return stored === "light" || stored === "dark" ? stored : "system";
}

/** @param {Theme} name */
export function chooseTheme(name) {
  localStorage.setItem(STORAGE_KEY, name);
  apply();
}

function apply() {
  document.documentElement.dataset.theme = theme();
}

apply();
