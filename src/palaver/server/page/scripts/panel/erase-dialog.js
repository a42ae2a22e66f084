/**
 * The dialog that erases a message. An erasure can't be undone, so it asks for a typed word, says
 * first what will be destroyed, and then what could not be reached.
 *
 * @typedef {import("../core/protocol.js").PostConversationsErase} Receipt
 */

import { api, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { dialog } from "../shell/dialog.js";
import { messageText, preview } from "./message-text.js";
import { errorText } from "./panel-view.js";

/** @param {import("../core/api.js").Item} item */
export function openErase({ index, message }) {
  const box = dialog();
  const word = t("views.erase.word");
  const field = /** @type {HTMLInputElement} */ (
    h("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", autofocus: true, oninput: () => (button.disabled = !sure()) })
  );
  const sure = () => field.value.trim().toLowerCase() === word.toLowerCase();
  const problem = h("p", { class: "e-problem", role: "alert", hidden: true });
  const button = /** @type {HTMLButtonElement} */ (h("button", { type: "submit", class: "danger", disabled: true }, t("views.erase.do")));
  const erase = async () => {
    if (!sure()) return;
    button.disabled = true;
    try {
      const receipt = await api.post(url`conversations/${get().id}/erase`, { message: message.id });
      fill(body, receiptOf(receipt, () => box.close()));
      body.querySelector("button")?.focus();
    } catch (error) {
      problem.hidden = false;
      problem.textContent = errorText(error);
      button.disabled = !sure();
    }
  };
  const body = h(
    "form",
    {
      class: "e-erase",
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        erase();
      },
    },
    h("div", { class: "e-warning" }, icon("alert"), h("div", null, h("p", null, h("strong", null, t("views.erase.forever"))), h("p", null, t("views.erase.says")))),
    h("blockquote", { class: "e-quote" }, h("span", { class: `v-role ${message.role}` }, `${index} ${t(`views.role.${message.role}`)}`), " ", preview(messageText(message), 240)),
    h("label", { class: "field" }, h("span", null, t("views.erase.type", { word })), field),
    problem,
    h("footer", { class: "dialog-foot" }, h("button", { type: "button", onclick: () => box.close() }, t("views.cancel")), button),
  );
  return box.ask({ title: t("views.erase.title") }, body);
}

/**
 * @param {Receipt} receipt
 * @param {() => void} close
 */
function receiptOf(receipt, close) {
  const { messages, places, summaries, outOfReach } = receipt;
  return [
    h("p", { role: "status" }, t("views.erase.done", { n: Math.max(messages, 1), places })),
    summaries ? h("p", null, t("views.erase.summaries", { n: summaries })) : null,
    outOfReach.length ? h("div", null, h("p", { class: "muted" }, t("views.erase.outOfReach")), h("ul", { class: "e-reach muted" }, outOfReach.map((each) => h("li", null, each)))) : null,
    h("footer", { class: "dialog-foot" }, h("button", { type: "button", class: "primary", onclick: close }, t("views.close"))),
  ];
}
