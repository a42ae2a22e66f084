/**
 * The page's own words, in the language that the reader chose. A text is found by its key; `{name}`
 * in it stands for a value, numbers are written the reader's way, and a text that depends on a
 * count has one form per plural category.
 */

import { file } from "./files.js";

/** @type {readonly ["en", "zh"]} */
export const LANGUAGES = Object.freeze(["en", "zh"]);
const AREAS = Object.freeze(["shell", "views"]);
const KEPT = "palaver.language";
const LOCALES = { en: "en", zh: "zh-CN" };

/** @type {Record<string, string | Record<string, string>>} */
let words = {};
/** @type {"en" | "zh"} */
let current = "en";
let plural = new Intl.PluralRules("en");
let number = new Intl.NumberFormat("en");
/** @type {Set<() => void>} */
const listeners = new Set();

/** The language that is spoken. */
export function language() {
  return current;
}

/**
 * The reader's own choice of old, or what the browser prefers, or English.
 *
 * @returns {"en" | "zh"}
 */
export function preferredLanguage() {
  const wanted = [localStorage.getItem(KEPT) ?? "", ...navigator.languages];
  const known = wanted.map((name) => LANGUAGES.find((one) => name.startsWith(one)));
  return known.find((one) => one !== undefined) ?? "en";
}

/**
 * Load a language and speak it from now on.
 *
 * @param {"en" | "zh"} name
 */
export async function speak(name) {
  const files = AREAS.map((area) => fetch(file(`words/${name}/${area}.json`)));
  const texts = await Promise.all((await Promise.all(files)).map((file) => file.json()));
  words = Object.assign({}, ...texts);
  current = name;
  plural = new Intl.PluralRules(LOCALES[name]);
  number = new Intl.NumberFormat(LOCALES[name]);
  document.documentElement.lang = LOCALES[name];
  listeners.forEach((listener) => listener());
}

/**
 * Speak another language and remember it.
 *
 * @param {"en" | "zh"} name
 */
export async function chooseLanguage(name) {
  localStorage.setItem(KEPT, name);
  await speak(name);
}

/**
 * Hear of a change of language; call what this returns to stop.
 *
 * @param {() => void} listener
 * @returns {() => void}
 */
export function onLanguage(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * The text of a key, with its values. Where the text has forms, the value `n` picks one.
 *
 *     t("head.messages", { n: 3 })   // "3 messages"
 *
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 * @returns {string}
 */
export function t(key, values = {}) {
  const found = words[key] ?? key;
  const text = typeof found === "string" ? found : form(found, Number(values.n));
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = values[name];
    return typeof value === "number" ? count(value) : (value ?? whole);
  });
}

/**
 * @param {Record<string, string>} forms
 * @param {number} n
 */
function form(forms, n) {
  return forms[plural.select(n)] ?? forms.other;
}

/**
 * A number as the reader writes it.
 *
 * @param {number} value
 * @returns {string}
 */
export function count(value) {
  return number.format(value);
}

/**
 * A large number, short: 12.3K.
 *
 * @param {number} value
 * @returns {string}
 */
export function short(value) {
  if (value < 10_000) return count(value);
  const options = { notation: "compact", maximumFractionDigits: 1 };
  return new Intl.NumberFormat(LOCALES[current], /** @type {any} */ (options)).format(value);
}

/**
 * A time of day, with the date where it is not today.
 *
 * @param {number} at  milliseconds
 * @returns {string}
 */
export function clock(at) {
  const date = new Date(at);
  const today = date.toDateString() === new Date().toDateString();
  const time = /** @type {const} */ ({ hour: "2-digit", minute: "2-digit" });
  const day = /** @type {const} */ ({ day: "numeric", month: "short" });
  return date.toLocaleString(LOCALES[current], today ? time : { ...day, ...time });
}

/**
 * How long something took: 340 ms, 2.1 s, 3 min 5 s.
 *
 * @param {number} ms
 * @returns {string}
 */
export function duration(ms) {
  if (ms < 1000) return t("time.ms", { n: Math.round(ms) });
  if (ms < 60_000) return t("time.s", { n: Math.round(ms / 100) / 10 });
  return t("time.min", { n: Math.floor(ms / 60_000), s: Math.round((ms % 60_000) / 1000) });
}

/**
 * How long ago: now, 5 min, 3 h, or the date.
 *
 * @param {number} at  milliseconds
 * @returns {string}
 */
export function ago(at) {
  const minutes = Math.floor((Date.now() - at) / 60_000);
  if (minutes < 1) return t("time.now");
  if (minutes < 60) return t("time.minutes", { n: minutes });
  if (minutes < 24 * 60) return t("time.hours", { n: Math.floor(minutes / 60) });
  return new Date(at).toLocaleDateString(LOCALES[current], { day: "numeric", month: "short" });
}
