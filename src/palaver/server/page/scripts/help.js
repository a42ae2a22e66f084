/** What `?` shows: the keyboard map as it is right now, by groups. */

import { h } from "./dom.js";
import { keyMap } from "./keys.js";
import { dialog } from "./pv-dialog.js";
import { t } from "./words.js";

/** Open the help. */
export function showKeys() {
  const groups = Map.groupBy(keyMap(), ({ group }) => group);
  const columns = [...groups].map(([group, bindings]) =>
    h(
      "section",
      null,
      h("h3", null, t(group)),
      h(
        "dl",
        { class: "keys" },
        ...bindings.map(({ keys, label }) =>
          h("div", null, h("dt", null, ...keys.split(" ").map((key) => h("kbd", null, shown(key)))), h("dd", null, t(label))),
        ),
      ),
    ),
  );
  dialog().ask({ title: t("keys.title"), wide: true }, h("div", { class: "dialog-body help" }, ...columns));
}

/** @param {string} key */
function shown(key) {
  return { Escape: "Esc", ArrowUp: "↑", ArrowDown: "↓", Enter: "↵" }[key] ?? key;
}
