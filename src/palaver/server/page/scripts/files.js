/** Where the page's own files are: beside its scripts, whatever address those came from. */

/**
 * The address of a file of the page.
 *
 *     file("icons/palaver.svg")
 *
 * @param {string} path
 * @returns {string}
 */
export function file(path) {
  return new URL(`../${path}`, import.meta.url).pathname;
}
