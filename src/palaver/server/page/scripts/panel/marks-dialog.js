/**
 * The dialog that adds and removes the marks of a message. A mark changes no message, so it has no
 * price.
 */

import { api, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { dialog } from "../shell/dialog.js";
import { messageText, preview } from "./message-text.js";
import { errorText } from "./panel-view.js";

/** @param {import("../core/api.js").Item} item */
export function openMarks(item) {
  const box = dialog();
  const names = new Set(item.marks);
  const list = h("ul", { class: "m-list", "aria-label": t("views.marks.list") });
  const problem = h("p", { class: "e-problem", role: "alert", hidden: true });
  const field = /** @type {HTMLInputElement} */ (
    h("input", { type: "text", list: "mark-names", autocomplete: "off", autofocus: true, placeholder: t("views.marks.placeholder") })
  );
  const known = h("datalist", { id: "mark-names" });
  const path = (/** @type {string} */ name) => url`conversations/${get().id}/marks/${name}`;

  const change = async (/** @type {() => Promise<any>} */ work) => {
    problem.hidden = true;
    try {
      await work();
      draw();
    } catch (error) {
      problem.hidden = false;
      problem.textContent = errorText(error);
    }
  };
  const add = (/** @type {string} */ name) =>
    change(async () => {
      await api.put(path(name), { message: item.message.id });
      names.add(name);
      field.value = "";
    });
  const remove = (/** @type {string} */ name) =>
    change(async () => {
      await api.delete(path(name), { query: { message: item.message.id } });
      names.delete(name);
      field.focus();
    });
  const draw = () =>
    fill(
      list,
      [...names].sort().map((name) =>
        h(
          "li",
          { class: "chip accent" },
          name,
          h("button", { type: "button", class: "quiet m-remove", "aria-label": t("views.marks.remove", { name }), onclick: () => remove(name) }, icon("x")),
        ),
      ),
      names.size ? null : h("li", { class: "muted" }, t("views.marks.none")),
    );
  draw();
  suggest(known);
  return box.ask(
    { title: t("views.marks.title") },
    h(
      "form",
      {
        class: "e-erase",
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          if (field.value.trim()) add(field.value.trim());
        },
      },
      h("blockquote", { class: "e-quote" }, h("span", { class: `v-role ${item.message.role}` }, `${item.index} ${t(`views.role.${item.message.role}`)}`), " ", preview(messageText(item.message), 160)),
      list,
      h("label", { class: "field" }, h("span", null, t("views.marks.name")), field, h("small", { class: "muted" }, t("views.marks.hint"))),
      known,
      problem,
      h("footer", { class: "dialog-foot" }, h("button", { type: "button", onclick: () => box.close() }, t("views.close")), h("button", { type: "submit", class: "primary" }, t("views.marks.add"))),
    ),
  );
}

/** Names that are in use, offered as the reader types. @param {HTMLElement} known */
async function suggest(known) {
  try {
    /** @type {import("../core/protocol.js").GetConversationsMarks} */
    const marks = await api.get(url`conversations/${get().id}/marks`);
    const names = new Set(marks.map((mark) => mark.name));
    fill(known, [...names].map((name) => h("option", { value: name })));
  } catch {
    // the suggestions are a comfort; marking works without them
  }
}
