/**
 * The actions on messages. The editor's modules are loaded with the first action that needs them.
 */

import { api, url } from "../core/api.js";
import { registerAction } from "../core/registry.js";
import { go } from "../core/routes.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { attempt, notify } from "../shell/toast.js";

/**
 * Fork the version that is shown, and cut the fork after a message.
 *
 * @param {number} keep  how many messages the fork has
 */
function forkAt(keep) {
  const { id, viewing } = get();
  return attempt(async () => {
    const fork = await api.post(url`conversations/${id}/fork`, viewing === null ? {} : { at: viewing });
    if (keep < fork.length) {
      const operation = { operation: "TRUNCATE", keepFirst: keep };
      await api.post(url`conversations/${fork.id}/operations`, { operation });
    }
    go({ id: fork.id, at: null });
    notify({ text: t("views.forked") });
  });
}

/**
 * @param {string} name
 * @param {string} action
 * @param {Partial<import("../core/registry.js").Action>} more
 */
function register(name, action, more) {
  registerAction(name, {
    label: `views.action.${name}`,
    run: ({ start, stop, item }) =>
      attempt(async () => {
        const { openEditor } = await import("./open-editor.js");
        await openEditor({ action, start, stop, item });
      }),
    ...more,
  });
}

register("edit", "replace", { icon: "edit", keys: "e", quick: true });
register("insert-before", "insert-before", { icon: "insert" });
register("insert-after", "insert-after", { icon: "insert", keys: "i" });
register("mark", "mark", { icon: "mark", keys: "m" });
register("delete", "delete", { icon: "trash", keys: "d", many: true });
registerAction("fork", {
  label: "views.action.fork",
  icon: "fork",
  keys: "f",
  run: ({ item }) => forkAt(item.index + 1),
});
register("erase", "erase", { icon: "erase", danger: true });
