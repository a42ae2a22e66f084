/**
 * The actions on messages. The editor's modules are loaded with the first action that needs them.
 */

import { api, url } from "../core/api.js";
import { registerAction } from "../core/registry.js";
import { go } from "../core/routes.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { attempt, notify } from "../shell/toast.js";
import { versionShown } from "../thread/message-actions.js";

/**
 * Fork the version that is shown, and cut the fork after a message.
 *
 * @param {import("../core/api.js").Item} item  the last message of the fork
 */
function forkAt(item) {
  const { id } = get();
  const keep = item.index + 1;
  return ifUnchanged(item, async (version) => {
    const fork = await api.post(url`conversations/${id}/fork`, { at: version });
    if (keep < fork.length) {
      const operation = { operation: "TRUNCATE", keepFirst: keep };
      await api.post(url`conversations/${fork.id}/operations`, { operation });
    }
    go({ id: fork.id, at: null });
    notify({ text: t("views.forked") });
  });
}

/**
 * Do something with a message of the version that is shown, unless others have moved it meanwhile.
 *
 * @param {import("../core/api.js").Item} item
 * @param {(version: number) => Promise<unknown>} work
 */
function ifUnchanged(item, work) {
  const version = versionShown(item);
  if (version === undefined) return notify({ kind: "error", text: t("views.conflict.title") });
  return attempt(() => work(version));
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
      ifUnchanged(item, async (version) => {
        const { openEditor } = await import("./open-editor.js");
        await openEditor({ action, start, stop, item, version });
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
  run: ({ item }) => forkAt(item),
});
register("erase", "erase", { icon: "erase", danger: true });
