/**
 * Files that come in: exports of palaver, transcripts of other tools, requests to a provider. They
 * are chosen, or dropped anywhere on the page; what they are is told by their content.
 *
 * @typedef {{from: string, conversations: {id: string, title: string | null}[], known: string[],
 *   report: {detail: string}[]}} Imported
 */

import { api } from "./api.js";
import { h } from "./dom.js";
import { failed, notify } from "./pv-toast.js";
import { go } from "./routes.js";
import { canWrite, get } from "./state.js";
import { t } from "./words.js";

/** A file over the page shows itself several times a second; without a sign for so long it is gone. */
const GONE = 1000;

/** Let the reader choose files. */
export function chooseFiles() {
  const field = /** @type {HTMLInputElement} */ (h("input", { type: "file", multiple: true }));
  field.addEventListener("change", () => take(field.files ?? []));
  field.click();
}

/** Take files that are dropped on the page, and say so while they are over it. */
export function takeDrops() {
  let timer = 0;
  const wanted = (/** @type {DragEvent} */ event) =>
    get().info && canWrite() && event.dataTransfer?.types.includes("Files");
  const gone = () => delete document.body.dataset.dropping;
  const over = (/** @type {DragEvent} */ event) => {
    if (!wanted(event)) return;
    event.preventDefault();
    document.body.dataset.dropping = t("import.drop");
    clearTimeout(timer);
    timer = setTimeout(gone, GONE);
  };
  document.addEventListener("dragenter", over);
  document.addEventListener("dragover", over);
  document.addEventListener("drop", (event) => {
    if (!wanted(event)) return;
    event.preventDefault();
    gone();
    take(event.dataTransfer?.files ?? []);
  });
}

/** One after the other; each is whole or not there. @param {Iterable<File>} files */
async function take(files) {
  for (const file of files) {
    try {
      tell(await api.upload("import", file, { query: { missing: true } }));
    } catch (error) {
      failed(error, t("import.failed", { name: file.name }));
    }
  }
}

/** @param {Imported} found */
function tell({ conversations, known, report }) {
  const [first] = conversations;
  if (!first) {
    notify({ text: t("import.known"), action: { label: t("import.open"), run: () => go({ id: known[0], view: null, at: null }) } });
    return;
  }
  document.dispatchEvent(new CustomEvent("pv-conversations"));
  go({ id: first.id, view: null, at: null });
  const name = first.title || first.id;
  const detail = report.length ? t("import.notes", { n: report.length, first: report[0].detail }) : undefined;
  notify({ text: t("import.done", { n: conversations.length, name }), detail });
}
