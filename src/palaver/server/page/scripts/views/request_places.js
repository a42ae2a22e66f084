/**
 * Where in a request something is that a repair speaks of. A repair names a message of the history;
 * a request is another arrangement of it, so the place is found by what stands there: ids and texts.
 */

/**
 * What a repair names: the ids and texts in quotes.
 *
 * @param {string} what
 * @returns {string[]}
 */
export function named(what) {
  return Array.from(what.matchAll(/'([^']+)'/gu), (found) => found[1]);
}

/**
 * The index of the message in the history.
 *
 * @param {string} path  messages[6]
 * @returns {number | null}
 */
export function messageIndex(path) {
  const found = /messages\[(\d+)\]/u.exec(path);
  return found ? Number(found[1]) : null;
}

/**
 * The entries of the request's list of messages that hold one of some strings, in order.
 *
 * @param {unknown} request
 * @param {string[]} wanted
 * @returns {string[]}  paths
 */
export function placesOf(request, wanted) {
  const strings = new Set(wanted.filter(Boolean));
  /** @type {string[]} */
  const found = [];
  /** @param {unknown} value @param {string} path @param {string | null} entry */
  const walk = (value, path, entry) => {
    if (typeof value === "string") {
      if (entry && strings.has(value) && found.at(-1) !== entry) found.push(entry);
    } else if (Array.isArray(value)) {
      value.forEach((each, index) => walk(each, `${path}[${index}]`, entry ?? `${path}[${index}]`));
    } else if (value !== null && typeof value === "object") {
      for (const [name, each] of Object.entries(value)) walk(each, `${path}.${name}`, entry);
    }
  };
  if (strings.size) walk(request, "$", null);
  return found;
}
