/** The settings: theme, language, the list of keys, and logging out. */

import { api } from "../core/api.js";
import { commands, isPossible, registerCommand } from "../core/registry.js";
import { chooseTheme, theme } from "../core/theme.js";
import { chooseLanguage, language, LANGUAGES, t } from "../locales/locale.js";
import { openMenu } from "./menu.js";
import { showKeys } from "./shortcuts.js";
import { attempt } from "./toast.js";

for (const name of /** @type {const} */ (["system", "light", "dark"])) {
  registerCommand(`theme.${name}`, { label: `theme.${name}`, group: "settings.theme", icon: "sun", menu: "settings", checked: () => theme() === name, run: () => chooseTheme(name) });
}
for (const name of LANGUAGES) {
  registerCommand(`language.${name}`, { label: `language.${name}`, group: "settings.language", icon: "language", menu: "settings", checked: () => language() === name, run: () => chooseLanguage(name) });
}
registerCommand("keys", { group: "keys.page", label: "keys.title", icon: "keyboard", keys: "?", menu: "settings", run: showKeys });
registerCommand("signout", { label: "signout", group: "keys.page", icon: "lock", menu: "settings", run: signOut });

/**
 * The menu of the settings: a line between one group and the next.
 *
 * @param {HTMLElement} anchor
 */
export function openSettings(anchor) {
  const fitting = commands().filter((command) => command.menu === "settings" && isPossible(command));
  const groups = Map.groupBy(fitting, ({ group }) => group);
  const entries = [...groups.values()].map((group) =>
    group.map(({ label, icon, keys, checked, run }) => ({ label: t(label), icon, keys, checked: checked?.(), run: () => void run(null) })),
  );
  openMenu(anchor, entries.flatMap((group, at) => (at ? [null, ...group] : group)));
}

async function signOut() {
  await attempt(() => api.delete("session"));
  location.reload();
}
