/**
 * The texts of the page in the chosen language. A text is found by its key. `{name}` in a text
 * stands for a value, numbers are formatted for the language, and a text that depends on a count
 * has one form per plural category.
 */



/** @type {readonly ["en", "zh"]} */
export const LANGUAGES = Object.freeze(["en", "zh"]);
const AREAS = Object.freeze(["shell", "panel"]);
const STORAGE_KEY = "palaver.language";
const LOCALES = { en: "en", zh: "zh-CN" };

/** @type {Record<string, string | Record<string, string>>} */
let texts = {};
/** @type {"en" | "zh"} */
let current = "en";
let plural = new Intl.PluralRules("en");
let number = new Intl.NumberFormat("en");
/** @type {Set<() => void>} */
const listeners = new Set();

/** The current language. */
export function language() {
  return current;
}

/**
 * The stored choice, the browser's preference, or English.
 *
 * @returns {"en" | "zh"}
 */
export function preferredLanguage() {
  const wanted = [localStorage.getItem(STORAGE_KEY) ?? "", ...navigator.languages];
  const known = wanted.map((name) => LANGUAGES.find((one) => name.startsWith(one)));
  return known.find((one) => one !== undefined) ?? "en";
}

/**
 * Load a language and switch to it.
 *
 * @param {"en" | "zh"} name
 */
export async function useLanguage(name) {
  const files = AREAS.map((area) => fetch(new URL(`./${name}/${area}.json`, import.meta.url)));
  const loaded = await Promise.all((await Promise.all(files)).map((file) => file.json()));
  texts = Object.assign({}, ...loaded);
  current = name;
  plural = new Intl.PluralRules(LOCALES[name]);
  number = new Intl.NumberFormat(LOCALES[name]);
  document.documentElement.lang = LOCALES[name];
  listeners.forEach((listener) => listener());
}

/**
 * Switch to a language and store the choice.
 *
 * @param {"en" | "zh"} name
 */
export async function chooseLanguage(name) {
  localStorage.setItem(STORAGE_KEY, name);
  await useLanguage(name);
}

/**
 * Call a listener when the language changes. Returns a function that unsubscribes.
 *
 * @param {() => void} listener
 * @returns {() => void}
 */
export function onLanguage(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * The text of a key, with its values. If the text has plural forms, the value `n` selects one.
 *
 *     t("head.messages", { n: 3 })   // "3 messages"
 *
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 * @returns {string}
 */
export function t(key, values = {}) {
  const found = texts[key] ?? key;
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
 * A number in the format of the language.
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
 * A number of bytes: 12 bytes, 3.4 kB, 5 MB. It is rounded up.
 *
 * @param {number} size
 * @returns {string}
 */
export function bytes(size) {
  const [unit, by] = size < 1024 ? ["byte", 1] : size < 1024 ** 2 ? ["kilobyte", 1024] : ["megabyte", 1024 ** 2];
  const shown = new Intl.NumberFormat(LOCALES[current], /** @type {any} */ ({ style: "unit", unit, unitDisplay: by === 1 ? "long" : "short", maximumFractionDigits: 1 }));
  return shown.format(Math.ceil((10 * size) / Number(by)) / 10);
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
 * A date, with the year where it is not this one.
 *
 * @param {number} at  milliseconds
 * @returns {string}
 */
export function day(at) {
  const date = new Date(at);
  const year = date.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  return date.toLocaleDateString(LOCALES[current], { day: "numeric", month: "short", year });
}

/**
 * An amount of dollars: $0.0042, $12.30.
 *
 * @param {number} amount
 * @returns {string}
 */
export function money(amount) {
  if (amount > 0 && amount < 0.0001) return "< $0.0001";
  return `$${amount.toFixed(amount >= 1 ? 2 : 4)}`;
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
