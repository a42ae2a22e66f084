/**
 * The files that will go with the next message: chosen, pasted or dropped. Each shows its size and
 * what the chosen model reads of it, as the server says. They are held in memory until they are
 * sent, for each conversation, and are sent with their bytes: nothing is uploaded before.
 *
 * @typedef {object} Attachment
 * @property {string} filename
 * @property {string} mime    the type that the browser believes it has, then the server's
 * @property {string} data    its bytes in base64
 * @property {number} size
 * @property {"file" | "text" | "nothing" | null} reads  null until it is known
 *
 * @typedef {import("../core/protocol.js").PostFiles} Report
 */

import { api } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { redraw } from "../core/redraw.js";
import { chosenModel, get, watch } from "../core/state.js";
import { bytes, onLanguage, t } from "../locales/locale.js";
import { pictureOf } from "./file-card.js";
import { visible } from "./text.js";

/** What a request has beside the files, at most: the text of a message and the options. */
const REST = 100_000;

export class Attachments extends HTMLElement {
  /** @type {Map<string, Attachment[]>} by conversation */
  held = new Map();
  /** What could not be attached, and why. @type {string[]} */
  problems = [];
  /** Settled when all that was added is read. @type {Promise<unknown>} */
  ready = Promise.resolve();
  /** @type {(() => void)[]} */
  subscriptions = [];

  connectedCallback() {
    this.classList.add("attachments");
    this.subscriptions = [
      watch(["id"], () => this.#opened()),
      watch(["model", "info"], () => this.#check(this.list)),
      onLanguage(() => this.#draw()),
    ];
    window.addEventListener("beforeunload", this.leaving);
    this.#draw();
  }

  disconnectedCallback() {
    this.subscriptions.forEach((stop) => stop());
    window.removeEventListener("beforeunload", this.leaving);
  }

  /** Have the browser ask before files are lost: unlike text, they are not stored. @param {Event} event */
  leaving = (event) => {
    if ([...this.held.values()].some((list) => list.length)) event.preventDefault();
  };

  /** Those of the open conversation. */
  get list() {
    return this.held.get(get().id ?? "") ?? [];
  }

  /** Attach files to the next message of the open conversation. @param {Iterable<File>} files */
  add(files) {
    const { id } = get();
    if (!id) return;
    this.problems = [];
    const work = [...files].map((file) => this.#addOne(id, file));
    this.ready = Promise.all([this.ready, ...work]);
    this.#draw();
  }

  /** Forget what was sent. @param {string} id @param {readonly Attachment[]} sent */
  sent(id, sent) {
    this.#put(id, (list) => list.filter((one) => !sent.includes(one)));
    this.problems = [];
    this.#draw();
  }

  #opened() {
    this.problems = [];
    this.#draw();
    this.#check(this.list);
  }

  /**
   * @param {string} id
   * @param {File} file
   */
  async #addOne(id, file) {
    const problem = this.#refusal(file);
    const data = problem ? null : await base64Of(file);
    if (data === null) {
      this.problems.push(problem ?? t("attach.unreadable", { name: file.name }));
      this.#draw();
      return;
    }
    /** @type {Attachment} */
    const added = { filename: file.name.slice(0, 255), mime: file.type, data, size: file.size, reads: null };
    const late = this.#overfull(id, added); // others may have been read meanwhile
    if (late) this.problems.push(late);
    else this.#put(id, (list) => [...list, added]);
    this.#draw();
    if (!late) await this.#check([added]);
  }

  /** Why a file can't be attached; null if it can. @param {File} file */
  #refusal({ name, size }) {
    const most = get().info?.limits.file ?? Infinity;
    if (!size) return t("attach.empty", { name });
    return size > most ? t("attach.large", { name, size: bytes(size), most: bytes(most) }) : null;
  }

  /**
   * Why no further file can be attached; null if it can.
   *
   * @param {string} id
   * @param {Attachment} added
   */
  #overfull(id, added) {
    const list = this.held.get(id) ?? [];
    const { files = Infinity, body = Infinity } = get().info?.limits ?? {};
    if (list.length >= files) return t("attach.many", { name: added.filename, n: files });
    const total = [...list, added].reduce((sum, { data }) => sum + data.length, REST);
    return total > body ? t("attach.together", { name: added.filename, most: bytes((body * 3) / 4) }) : null;
  }

  /** Ask what the chosen model reads of files. @param {Attachment[]} files */
  async #check(files) {
    if (!files.length) return;
    const { model } = get();
    const body = { ...(model ? { model } : {}), files: files.map(withBytes) };
    /** @type {Report | null} a model that is not ready reads nothing yet, and its button says so */
    const report = await api.post("files", body).catch(() => null);
    if (model !== get().model) return; // then all are asked about again
    files.forEach((file, at) => {
      file.reads = report?.items[at].reads ?? null;
      file.mime = report?.items[at].mime ?? file.mime;
    });
    this.#draw();
  }

  /**
   * @param {string} id
   * @param {(list: Attachment[]) => Attachment[]} change
   */
  #put(id, change) {
    this.held.set(id, change(this.held.get(id) ?? []));
  }

  #draw() {
    const { list, problems } = this;
    this.hidden = !list.length && !problems.length;
    redraw(this, () =>
      fill(
        this,
        list.length ? h("ul", { "aria-label": t("attach.list") }, list.map((file) => this.#item(file))) : null,
        h("div", { role: "alert" }, problems.map((problem) => h("p", { class: "row small danger-text" }, icon("alert"), h("span", null, visible(problem))))),
      ),
    );
  }

  /** @param {Attachment} file */
  #item(file) {
    const { filename, mime, data, size, reads } = file;
    const model = chosenModel()?.label ?? t("composer.nomodel");
    const says = reads === "nothing" ? t("attach.nothing", { model }) : reads === "text" ? t("attach.text") : null;
    return h(
      "li",
      { class: "attachment", data: { reads } },
      pictureOf(`data:${mime};base64,${data}`, "") ?? icon("file"),
      h(
        "span",
        { class: "grow" },
        h("span", { class: "row" }, h("span", { class: "clip small" }, visible(filename)), h("span", { class: "muted tiny" }, bytes(size))),
        says ? h("span", { class: `tiny ${reads === "nothing" ? "warn-text" : "muted"}`, role: "status" }, says) : null,
      ),
      h("button", { type: "button", class: "quiet", "aria-label": t("attach.remove", { name: filename }), title: t("attach.remove", { name: filename }), data: { focus: filename }, onclick: () => this.#remove(file) }, icon("x")),
    );
  }

  /** @param {Attachment} file */
  #remove(file) {
    this.sent(get().id ?? "", [file]);
    document.getElementById("say")?.focus();
  }
}

/** A file as the server takes it. @param {Attachment} file */
export function withBytes({ filename, mime, data }) {
  return { filename, mime, data };
}

/** The bytes of a file in base64; null if it can't be read, as a folder can't. @param {File} file */
function base64Of(file) {
  return new Promise((/** @type {(data: string | null) => void} */ resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",", 2)[1] ?? null);
    reader.onerror = () => resolve(null);
    reader.readAsDataURL(file);
  });
}

customElements.define("pv-attachments", Attachments);
