/** The settings menu: theme, language, the list of keys, and logging out. */

import { api } from "../core/api.js";
import { chooseTheme, theme } from "../core/theme.js";
import { chooseLanguage, language, t } from "../locales/locale.js";
import { openMenu } from "./menu.js";
import { showKeys } from "./shortcuts.js";
import { attempt } from "./toast.js";

/** The languages by their own names. */
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
