/**
 * Imports files: palaver's exports, transcripts of other tools, requests to a provider. Files are
 * chosen or dropped anywhere on the page; the server detects the format.
 *
 * @typedef {import("../core/protocol.js").PostImport} Imported
 */

import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { registerCommand } from "../core/registry.js";
import { go } from "../core/routes.js";
import { canWrite, get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { failed, notify } from "./toast.js";

/** A dragged file fires several events a second; after so many milliseconds without one it has left. */
const GONE = 1000;

/** Let the reader choose files. */
export function chooseFiles() {
  const field = /** @type {HTMLInputElement} */ (h("input", { type: "file", multiple: true }));
  field.addEventListener("change", () => importFiles(field.files ?? []));
  field.click();
}

registerCommand("import", { label: "import", group: "keys.page", icon: "upload", writes: true, run: chooseFiles });

/** Import files that are dropped on the page, and show a hint while they are dragged over it. */
export function acceptDrops() {
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
    importFiles(event.dataTransfer?.files ?? []);
  });
}

/** Import files one after the other; each is imported completely or not at all. @param {Iterable<File>} files */
async function importFiles(files) {
  for (const file of files) {
    try {
      announce(await api.upload("import", file, { query: { missing: true, file: file.name } }));
    } catch (error) {
      failed(error, t("import.failed", { name: file.name }));
    }
  }
}

/** @param {Imported} found */
function announce({ conversations, known, report }) {
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
