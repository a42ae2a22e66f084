/**
 * Two edits of the same moment: what others did meanwhile, what the reader wants, and the choice to
 * do it on the newest version or not at all. Nothing is overwritten unseen.
 */

import { h } from "../dom.js";
import { t } from "../words.js";
import { editScript } from "./edit_script.js";
import { firstWords } from "./message_text.js";
import { moved } from "./operations.js";
import { saying } from "./pane.js";
import { changeSummary } from "./saying_change.js";

/**
 * @param {object} sides
 * @param {import("./operations.js").Draft} sides.draft
 * @param {Record<string, any>} sides.operation
 * @param {any} sides.theirs        the difference from the version that was edited to the newest
 * @param {number} sides.newest
 * @param {() => void} sides.cancel
 * @param {(operation: Record<string, any>) => Promise<void>} sides.again
 */
export function conflict({ draft, operation, theirs, newest, cancel, again }) {
  const { operation: next, fate } = moved(operation, editScript(theirs));
  const problem = h("p", { class: "e-problem", role: "alert", hidden: true });
  const price = /** @type {any} */ (h("pv-price", null));
  const apply = /** @type {HTMLButtonElement} */ (
    h("button", { type: "button", class: "primary", disabled: true, onclick: () => redo() }, t("views.conflict.again"))
  );
  const redo = async () => {
    apply.disabled = true;
    try {
      if (next) await again(next);
    } catch (error) {
      problem.hidden = false;
      problem.textContent = saying(error);
    }
  };
  price.addEventListener("priced", (/** @type {CustomEvent} */ event) => (apply.disabled = event.detail === null));
  if (next) price.operation = next;
  return h(
    "div",
    { class: "e-conflict" },
    h("div", { class: "e-conflict-says", role: "alert" }, h("h3", { tabindex: "-1" }, t("views.conflict.title")), h("p", null, t("views.conflict.says", { version: String(newest) }))),
    h(
      "div",
      { class: "e-sides" },
      h("section", null, h("h4", null, t("views.conflict.theirs")), changeSummary(theirs, 4)),
      h(
        "section",
        null,
        h("h4", null, t("views.conflict.yours")),
        h("p", null, t(`views.edit.${draft.action}.name`)),
        draft.text ? h("p", { class: "e-quote" }, firstWords(draft.text, 240)) : null,
        h("p", { class: fate === "gone" || fate === "changed" ? "v-bad" : "muted" }, t(`views.conflict.${fate}`)),
      ),
    ),
    next ? price : null,
    problem,
    h("footer", { class: "dialog-foot e-foot" }, h("button", { type: "button", onclick: cancel }, t("views.conflict.cancel")), next ? apply : null),
  );
}
