/**
 * Files in a message. Nothing is fetched, and nothing of a file runs: an image is drawn only from
 * bytes in the message, text is shown as text, and any other address is shown as a name, or as a link
 * if it leads to the web.
 */

import { h, icon, link } from "../core/dom.js";
import { bytes, count, t } from "../locales/locale.js";
import { code, visible } from "./text.js";

/** Image types that can't run anything; SVG can, so it is left out. */
const PICTURE = /^data:image\/(png|jpe?g|gif|webp);base64,[a-z0-9+/=\s]*$/i;
const BASE64 = /^data:[^,]*;base64,/i;
const TEXT = /^(text\/|application\/(json|xml)$)/;

/**
 * A file: its name, type and size, the image or the text if its bytes are in the message, and a
 * button that saves it.
 *
 * @param {Record<string, any>} part
 * @returns {HTMLElement}
 */
export function fileCard({ mime, url, filename, source }) {
  const name = filename ?? source?.path ?? source?.uri ?? (url.startsWith("data:") ? mime : url);
  const inside = BASE64.test(url);
  const about = h(
    "div",
    { class: "row small" },
    icon(mime.startsWith("image/") ? "image" : "file"),
    h("span", { class: "clip" }, url.startsWith("data:") ? visible(name) : link(url, name)),
    h("span", { class: "muted tiny" }, mime),
    source?.range ? h("span", { class: "muted tiny mono" }, `:${count(source.range.start.line + 1)}`) : null,
    inside ? h("span", { class: "muted tiny" }, bytes(sizeOf(url))) : null,
    inside ? saveButton(url, filename ?? "file") : null,
  );
  const picture = pictureOf(url, filename ?? t("part.image"));
  const quoted = source?.text?.value ? code(source.text.value, source.path ?? "") : null;
  return h("div", { class: "file card" }, about, picture ? thumbnail(picture) : null, quoted, inside && TEXT.test(mime) ? textFold(url, name) : null);
}

/**
 * The image in a `data:` address; null if it is none that can be shown without danger.
 *
 * @param {string} url
 * @param {string} alt
 */
export function pictureOf(url, alt) {
  return PICTURE.test(url) ? h("img", { src: url, alt, class: "picture" }) : null;
}

/** An image that a press shows whole. @param {HTMLImageElement} picture */
function thumbnail(picture) {
  const turn = () => button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") !== "true"));
  const button = h("button", { type: "button", class: "plain thumbnail", "aria-expanded": "false", title: t("part.enlarge"), onclick: turn }, picture);
  return button;
}

/** The text of a file, which is read when it is unfolded. @param {string} url @param {string} name */
function textFold(url, name) {
  const body = h("div", { class: "fold-body" });
  const show = () => body.childElementCount || body.append(code(new TextDecoder().decode(bytesOf(url)), name));
  return h("details", { class: "fold", ontoggle: show }, h("summary", null, icon("right"), h("span", null, t("part.text"))), body);
}

/** @param {string} url @param {string} name */
function saveButton(url, name) {
  const save = () => {
    // as bytes of no type: whatever they are, a browser only saves them
    const where = URL.createObjectURL(new Blob([bytesOf(url)], { type: "application/octet-stream" }));
    h("a", { href: where, download: name }).click();
    URL.revokeObjectURL(where);
  };
  return h("button", { type: "button", class: "quiet", "aria-label": t("part.save", { name }), title: t("part.save", { name }), onclick: save }, icon("download"));
}

/** @param {string} url */
function bytesOf(url) {
  try {
    return Uint8Array.from(atob(url.slice(url.indexOf(",") + 1)), (character) => character.charCodeAt(0));
  } catch {
    return new Uint8Array(); // no base64: what claims to be a file has no bytes
  }
}

/** How many bytes are in an address, without reading them. @param {string} url */
function sizeOf(url) {
  const length = url.length - url.indexOf(",") - 1;
  return Math.floor((length * 3) / 4) - (url.endsWith("==") ? 2 : url.endsWith("=") ? 1 : 0);
}
