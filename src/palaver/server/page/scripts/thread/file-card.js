/**
 * Files in a message. Nothing is fetched: an image is drawn only from bytes in the message, and any
 * other address is shown as a name, or as a link if it leads to the web.
 */

import { h, icon, link } from "../core/dom.js";
import { count, t } from "../locales/locale.js";
import { code } from "./text.js";

/** Image types that can't run anything; SVG can, so it is left out. */
const PICTURE = /^data:image\/(png|jpe?g|gif|webp);base64,[a-z0-9+/=\s]*$/i;

/**
 * A file: its name and type, and the image if its bytes are in the message.
 *
 * @param {Record<string, any>} part
 * @returns {HTMLElement}
 */
export function fileCard({ mime, url, filename, source }) {
  const name = filename ?? source?.path ?? source?.uri ?? (url.startsWith("data:") ? mime : url);
  const about = h(
    "div",
    { class: "row small" },
    icon(mime.startsWith("image/") ? "image" : "file"),
    h("span", { class: "clip" }, url.startsWith("data:") ? name : link(url, name)),
    h("span", { class: "muted tiny" }, mime),
    source?.range ? h("span", { class: "muted tiny mono" }, `:${count(source.range.start.line + 1)}`) : null,
  );
  const shown = PICTURE.test(url) ? h("img", { src: url, alt: filename ?? t("part.image"), class: "picture" }) : null;
  const quoted = source?.text?.value ? code(source.text.value, source.path ?? "") : null;
  return h("div", { class: "file card" }, about, shown, quoted);
}
