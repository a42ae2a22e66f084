/**
 * The dialog that merges a fork with its parent. It shows both sides first. If both changed the
 * same message, nothing is merged and the dialog says so.
 */

import { api, Problem, url } from "../core/api.js";
import { h } from "../core/dom.js";
import { go } from "../core/routes.js";
import { t } from "../locales/locale.js";
import { dialog } from "../shell/dialog.js";
import { announceEdit, attempt } from "../shell/toast.js";
import { errorText } from "./panel-view.js";
import { changeSummary } from "./version-changes.js";

const SHOWN = 4;

/**
 * @param {object} way
 * @param {string} way.parent  the conversation that was forked
 * @param {number} way.at      its version then
 * @param {string} way.fork
 * @param {string} way.into    one of the two: where it comes together
 */
export async function openMerge({ parent, at, fork, into }) {
  const other = into === parent ? fork : parent;
  const since = (/** @type {string | null} */ there) =>
    api.get(url`conversations/${parent}/diff`, { query: { before: at, other: there, limit: SHOWN } });
  const sides = await attempt(() => Promise.all([since(null), since(fork)]));
  if (!sides) return;
  const [there, forked] = sides;
  const asked = dialog();
  const problem = h("p", { class: "e-problem", role: "alert", hidden: true });
  const merge = /** @type {HTMLButtonElement} */ (
    h("button", { type: "button", class: "primary", autofocus: true, onclick: () => act() }, t("views.merge.action"))
  );
  /** @type {number | undefined} the version that has both sides */
  let merged;
  const act = async () => {
    merge.disabled = true;
    try {
      merged = (await api.post(url`conversations/${into}/merge`, { other })).version;
      asked.close("yes");
    } catch (error) {
      const clashes = error instanceof Problem ? error.body.clashes : null;
      problem.hidden = false;
      problem.textContent = clashes ? t("views.merge.clashes", { n: clashes.length }) : errorText(error);
      merge.disabled = Boolean(clashes); // a clash stays one; a server that was away may be back
    }
  };
  const answer = asked.ask(
    { title: t("views.merge.title"), wide: true },
    h(
      "div",
      { class: "e-conflict" },
      h("p", null, t("views.merge.says", { name: into, version: String(at) })),
      h(
        "div",
        { class: "e-sides" },
        side(t("views.merge.parent", { name: parent }), there),
        side(t("views.merge.fork", { name: fork }), forked),
      ),
      problem,
      h("footer", { class: "dialog-foot e-foot" }, h("button", { type: "button", onclick: () => asked.close() }, t("cancel")), merge),
    ),
  );
  if ((await answer) !== "yes") return;
  go({ id: into, at: null });
  announceEdit(t("views.merge.done", { name: other }), merged, into);
}

/**
 * @param {string} title
 * @param {import("./edit-script.js").Difference} difference
 */
function side(title, difference) {
  return h("section", null, h("h3", null, title), changeSummary(difference, SHOWN));
}
