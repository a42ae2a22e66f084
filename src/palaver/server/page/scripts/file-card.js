/**
 * Files that came with a message. Nothing is ever fetched: a picture is drawn only from the
 * message's own bytes, and any other address is a name, or a link where it leads to the web.
 */

import { h, icon, link } from "./dom.js";
import { code } from "./text.js";
import { count, t } from "./words.js";

/** Pictures that can do nothing but be seen; SVG is left out, since it is a program. */
const PICTURE = /^data:image\/(png|jpe?g|gif|webp);base64,[a-z0-9+/=\s]*$/i;

/**
 * A file: its name and type, and the picture itself where the message brought one along.
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
