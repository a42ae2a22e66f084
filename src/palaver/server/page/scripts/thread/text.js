/**
 * Text as it is, with two exceptions: fenced code is shown as code, and web addresses become links.
 * Everything else, markup and markers included, is shown character by character.
 */

import { h, icon, link } from "../core/dom.js";
import { count, t } from "../locales/locale.js";

/** A longer text is cut until the reader asks for the rest: a megabyte would block the page. */
const LONGEST = 6000;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$/;
const ADDRESS = /https?:\/\/[^\s<>"'`\\^{|}]+/gi;
const TRAILING = ".,;:!?)]";
/** A letter or sign of a script whose words have joiners: Arabic to Sinhala, Myanmar, Khmer, Mongolian. */
const LETTER = "(?=[\\p{L}\\p{M}])[\\u0600-\\u0dff\\u1000-\\u109f\\u1780-\\u18af]";
/** A joiner where it belongs: after a part of a picture, or inside a word of such a script. */
const JOINER = `(?<=[\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\ufe0f])\\u200d|(?<=${LETTER})[\\u200c\\u200d](?=${LETTER})`;
/** What can't be seen, or turns what follows around. */
const UNSEEN = new RegExp(
  `(?!${JOINER})[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u115f\\u1160\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\u{e0000}-\\u{e01ef}]`,
  "gu",
);
/** A longer line is never taken for a fence. */
const FENCE_LINE = 200;

/**
 * A text as an element.
 *
 * @param {string} text
 * @returns {HTMLElement}
 */
export function prose(text) {
  const body = h("div", { class: "prose" });
  const short = text.length > LONGEST ? cutAt(text, LONGEST) : text;
  body.append(...blocks(short));
  if (short.length < text.length) {
    const more = h(
      "button",
      { type: "button", class: "more-text", onclick: () => body.replaceChildren(...blocks(text)) },
      t("text.all", { n: text.length }),
    );
    body.append(more);
  }
  return body;
}

/**
 * Code or other literal text, with a button that copies it.
 *
 * @param {string} text
 * @param {string} [name]  its language or kind
 * @param {[string, string][]} [pieces]  the same text in pieces, each with the name of its colour
 * @returns {HTMLElement}
 */
export function code(text, name = "", pieces = [[text, ""]]) {
  const short = text.length > LONGEST ? cutAt(text, LONGEST) : text;
  const body = h("pre", { class: "code wrap", tabindex: 0, role: "group", "aria-label": name || t("text.code") }, coloured(pieces, short.length));
  const more =
    short.length < text.length
      ? h(
          "button",
          {
            type: "button",
            class: "more-text",
            onclick: (/** @type {Event} */ event) => {
              body.replaceChildren(...coloured(pieces, text.length));
              /** @type {HTMLElement} */ (event.target).remove();
            },
          },
          t("text.all", { n: text.length }),
        )
      : null;
  return h(
    "div",
    { class: "code-block" },
    h("div", { class: "code-head" }, h("span", { class: "clip" }, name), copyButton(text)),
    body,
    more,
  );
}

/**
 * The first characters of code, in its colours.
 *
 * @param {[string, string][]} pieces
 * @param {number} most
 * @returns {(Node | string)[]}
 */
function coloured(pieces, most) {
  let left = most;
  return pieces.flatMap(([text, colour]) => {
    const shown = text.slice(0, Math.max(0, left));
    left -= shown.length;
    if (!shown) return [];
    return colour ? [h("span", { class: `code-${colour}` }, visible(shown))] : visible(shown);
  });
}

/**
 * @param {string} text
 * @returns {HTMLElement}
 */
export function copyButton(text) {
  const button = h(
    "button",
    {
      type: "button",
      class: "quiet copy",
      "aria-label": t("copy"),
      title: t("copy"),
      onclick: async () => {
        await navigator.clipboard.writeText(text);
        button.replaceChildren(icon("check"));
        setTimeout(() => button.replaceChildren(icon("copy")), 1200);
      },
    },
    icon("copy"),
  );
  return button;
}

/**
 * The length of a text, for a summary line.
 *
 * @param {string} text
 * @returns {string}
 */
export function sizeOf(text) {
  return t("text.characters", { n: text.length, shown: count(text.length) });
}

/**
 * The beginning of a text.
 *
 * @param {string} text
 * @param {number} most
 */
export function cutAt(text, most) {
  // not between the halves of a pair
  const half = text.charCodeAt(most - 1);
  return text.slice(0, half >= 0xd800 && half < 0xdc00 ? most - 1 : most);
}

/**
 * Paragraphs and fenced code, in order; a fence that is never closed runs to the end.
 *
 * @param {string} text
 * @returns {Node[]}
 */
function blocks(text) {
  /** @type {Node[]} */
  const found = [];
  /** @type {string[]} */
  let lines = [];
  let fence = "";
  let name = "";
  const close = () => {
    if (fence) found.push(code(lines.join("\n"), name));
    else if (lines.some((line) => line.trim())) found.push(paragraph(lines.join("\n")));
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = line.length > FENCE_LINE ? null : FENCE.exec(line);
    if (!fence && mark) {
      close();
      [, fence, name] = mark;
    } else if (fence && mark && !mark[2] && mark[1].startsWith(fence)) {
      close();
      fence = "";
    } else {
      lines.push(line);
    }
  }
  close();
  return found;
}

/**
 * @param {string} text
 * @returns {HTMLElement}
 */
function paragraph(text) {
  const body = h("p", { class: "text" });
  let at = 0;
  const plain = text.replace(/^\n+/, "").trimEnd();
  for (const match of plain.matchAll(ADDRESS)) {
    const address = withoutTrailing(match[0]);
    body.append(...visible(plain.slice(at, match.index)), link(address));
    at = match.index + address.length;
  }
  body.append(...visible(plain.slice(at)));
  return body;
}

/**
 * A text in which characters that can't be seen are shown by their numbers.
 *
 * @param {string} text
 * @returns {(Node | string)[]}
 */
export function visible(text) {
  /** @type {(Node | string)[]} */
  const found = [];
  let at = 0;
  for (const match of text.matchAll(UNSEEN)) {
    const number = `U+${(match[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
    found.push(text.slice(at, match.index), h("bdi", { class: "unseen", title: t("text.unseen") }, number));
    at = match.index + match[0].length;
  }
  return found.length ? [...found, text.slice(at)] : [text];
}

/**
 * An address without the punctuation of the sentence that it ends.
 *
 * @param {string} address
 */
function withoutTrailing(address) {
  let end = address.length;
  while (TRAILING.includes(address[end - 1])) end--;
  return address.slice(0, end);
}
