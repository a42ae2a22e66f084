/** The page's own settings: light or dark, the language, the keys, and the way out. */

import { api } from "./api.js";
import { showKeys } from "./help.js";
import { openMenu } from "./pv-menu.js";
import { attempt } from "./pv-toast.js";
import { chooseTheme, theme } from "./theme.js";
import { chooseLanguage, language, t } from "./words.js";

/** Each language says its name itself. */
const NAMES = { en: "English", zh: "中文" };

/** @param {HTMLElement} anchor */
export function openSettings(anchor) {
  const themes = /** @type {const} */ (["system", "light", "dark"]);
  const languages = /** @type {const} */ (["en", "zh"]);
  openMenu(anchor, [
    ...themes.map((name) => ({ label: t(`theme.${name}`), checked: theme() === name, run: () => chooseTheme(name) })),
    null,
    ...languages.map((name) => ({ label: NAMES[name], checked: language() === name, run: () => void chooseLanguage(name) })),
    null,
    { label: t("keys.title"), icon: "keyboard", keys: "?", run: showKeys },
    { label: t("signout"), icon: "lock", run: signOut },
  ]);
}

async function signOut() {
  await attempt(() => api.delete("session"));
  location.reload();
}
