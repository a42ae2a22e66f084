/**
 * Two edits of the same version: shows what others changed and what the reader wants, and lets the
 * reader apply the edit to the newest version or cancel it. Nothing is overwritten unseen.
 */

import { h } from "../core/dom.js";
import { t } from "../locales/locale.js";
import { rebase } from "./edit-operations.js";
import { editScript } from "./edit-script.js";
import { preview } from "./message-text.js";
import { errorText } from "./panel-view.js";
import { changeSummary } from "./version-changes.js";

/**
 * @param {object} sides
 * @param {import("./edit-operations.js").EditDraft} sides.draft
 * @param {Record<string, any>} sides.operation
 * @param {import("./edit-script.js").Difference} sides.theirs        the difference from the version that was edited to the newest
 * @param {number} sides.newest
 * @param {() => void} sides.cancel
 * @param {(operation: Record<string, any>) => Promise<void>} sides.again
 */
export function conflict({ draft, operation, theirs, newest, cancel, again }) {
  const { operation: next, fate } = rebase(operation, editScript(theirs));
  const problem = h("p", { class: "e-problem", role: "alert", hidden: true });
  const price = h("pv-price");
  const apply = /** @type {HTMLButtonElement} */ (
    h("button", { type: "button", class: "primary", disabled: true, onclick: () => redo() }, t("views.conflict.again"))
  );
  const redo = async () => {
    apply.disabled = true;
    try {
      if (next) await again(next);
    } catch (error) {
      problem.hidden = false;
      problem.textContent = errorText(error);
    }
  };
  price.addEventListener("pv-priced", (event) => (apply.disabled = event.detail === null));
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
        draft.text ? h("p", { class: "e-quote" }, preview(draft.text, 240)) : null,
        h("p", { class: fate === "gone" || fate === "changed" ? "v-bad" : "muted" }, t(`views.conflict.${fate}`)),
      ),
    ),
    next ? price : null,
    problem,
    h("footer", { class: "dialog-foot e-foot" }, h("button", { type: "button", onclick: cancel }, t("views.conflict.cancel")), next ? apply : null),
  );
}
