/**
 * The server's HTTP API. A call returns the JSON of the response or throws a `Problem` with what
 * the server reported. An abort is the only other error it throws.
 *
 * @typedef {import("./protocol.js").GetConversationsOne} Head  a conversation, as the list shows it
 * @typedef {import("./protocol.js").GetConversationsMessages["items"][number]} AnsweredItem
 * @typedef {AnsweredItem["message"] & {id: string, timestamp: number}} Message  the server sends both
 * @typedef {Omit<AnsweredItem, "message"> & {message: Message}} Item  a message in its place in a view
 *
 * @typedef {object} Options
 * @property {Record<string, any>} [query]    parameters; null and undefined ones are left out
 * @property {number} [version]               sent as If-Match: refuse when it is no longer the newest
 * @property {string} [key]                   sent as Idempotency-Key: a retry changes nothing
 * @property {AbortSignal} [signal]
 */

const ROOT = "/api/";

/** An error that the server reported (problem+json), or status 0 if it could not be reached. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {Record<string, any>} body
   */
  constructor(status, body) {
    super(body.detail || body.title || String(status));
    this.name = "Problem";
    this.status = status;
    /** The whole response: clashes, version, path, rule and more. */
    this.body = body;
  }

  /** Whether the server can't be reached or can't use its store. */
  get away() {
    return this.status === 0 || this.status === 503;
  }
}

/** @type {Set<() => void>} */
const unauthorised = new Set();

/**
 * Call a listener when the server no longer accepts the session.
 *
 * @param {() => void} listener
 */
export function onUnauthorised(listener) {
  unauthorised.add(listener);
}

/**
 * A path with each value escaped: url`conversations/${id}/messages`.
 *
 * @param {TemplateStringsArray} texts
 * @param {...any} values
 * @returns {string}
 */
export function url(texts, ...values) {
  return String.raw({ raw: texts }, ...values.map((value) => encodeURIComponent(value)));
}

/**
 * The address of a path under the API, with its parameters.
 *
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @returns {string}
 */
export function address(path, query = {}) {
  const wanted = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const search = new URLSearchParams(wanted.map(([name, value]) => [name, String(value)]));
  return ROOT + path + (wanted.length ? `?${search}` : "");
}

/**
 * @param {string} method
 * @param {string} path
 * @param {any} body
 * @param {Options} options
 * @returns {Promise<any>}
 */
async function call(method, path, body, { query, version, key, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  // a body of our own making also on calls without one: the server wants to see JSON on every write
  const text = method === "GET" || body instanceof Blob ? body : JSON.stringify(body ?? {});
  if (body instanceof Blob) headers["Content-Type"] = "application/octet-stream";
  else if (text !== undefined) headers["Content-Type"] = "application/json";
  if (version !== undefined) headers["If-Match"] = `"${version}"`;
  if (key !== undefined) headers["Idempotency-Key"] = key;
  const answer = await reached(fetch(address(path, query), { method, headers, body: text, signal, credentials: "same-origin" }));
  if (answer.ok) return answer.status === 204 ? null : reached(answer.json());
  if (answer.status === 401 && path !== "session") unauthorised.forEach((tell) => tell());
  throw new Problem(answer.status, await problemOf(answer));
}

/**
 * What a request gives; the connection may break at its head or amid its body.
 *
 * @template T
 * @param {Promise<T>} asked
 */
async function reached(asked) {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, { title: "unreachable" });
  }
}

/** @param {Response} answer */
async function problemOf(answer) {
  try {
    return await answer.json();
  } catch {
    return { title: answer.statusText };
  }
}

export const api = Object.freeze({
  /** @param {string} path @param {Options} [options] */
  get: (path, options) => call("GET", path, undefined, options ?? {}),
  /** @param {string} path @param {any} [body] @param {Options} [options] */
  post: (path, body, options) => call("POST", path, body, options ?? {}),
  /** @param {string} path @param {Blob} file @param {Options} [options] */
  upload: (path, file, options) => call("POST", path, file, options ?? {}),
  /** @param {string} path @param {any} body @param {Options} [options] */
  put: (path, body, options) => call("PUT", path, body, options ?? {}),
  /** @param {string} path @param {any} body @param {Options} [options] */
  patch: (path, body, options) => call("PATCH", path, body, options ?? {}),
  /** @param {string} path @param {Options} [options] */
  delete: (path, options) => call("DELETE", path, undefined, options ?? {}),
});
