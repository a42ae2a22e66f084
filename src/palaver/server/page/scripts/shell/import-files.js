/**
 * Imports files: palaver's exports, transcripts of other tools, requests to a provider. Files are
 * chosen or dropped anywhere on the page; the server detects the format. Files that are dropped on
 * the chat box, and pictures, documents and sounds wherever they are dropped, are attached instead:
 * no transcript is one.
 *
 * @typedef {import("../core/protocol.js").PostImport} Imported
 */

import { api, Problem } from "../core/api.js";
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
    document.body.dataset.dropping = t(composerFor(event) ? "attach.drop" : "import.drop");
    clearTimeout(timer);
    timer = setTimeout(gone, GONE);
  };
  document.addEventListener("dragenter", over);
  document.addEventListener("dragover", over);
  document.addEventListener("drop", (event) => {
    if (!wanted(event)) return;
    event.preventDefault();
    gone();
    const files = event.dataTransfer?.files ?? [];
    const composer = composerFor(event);
    if (composer) composer.attach(files);
    else importFiles(files, openComposer());
  });
}

/** What no transcript is. */
const MEDIA = /^(image|audio|video)\/|^application\/pdf$/;

/** The chat box of the open conversation, if something can be said in it. */
function openComposer() {
  const composer = get().id ? document.querySelector("pv-composer") : null;
  return composer?.hidden ? null : composer;
}

/** The chat box, if that is where dragged files belong. @param {DragEvent} event */
function composerFor({ target, dataTransfer }) {
  const composer = openComposer();
  const files = [...(dataTransfer?.items ?? [])].filter(({ kind }) => kind === "file");
  const media = files.length > 0 && files.every(({ type }) => MEDIA.test(type));
  return media || composer?.contains(/** @type {Node} */ (target)) ? composer : null;
}

/**
 * Import files one after the other; each is imported completely or not at all.
 *
 * @param {Iterable<File>} files
 * @param {import("../thread/composer.js").Composer | null} [composer]  where one in no known format may go instead
 */
async function importFiles(files, composer = null) {
  for (const file of files) {
    try {
      announce(await api.upload("import", file, { query: { missing: true, file: file.name } }));
    } catch (error) {
      const text = t("import.failed", { name: file.name });
      if (!(composer && error instanceof Problem && error.status === 422)) failed(error, text);
      else notify({ kind: "error", text, detail: error.message, action: { label: t("attach.instead"), run: () => composer.attach([file]) } });
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
