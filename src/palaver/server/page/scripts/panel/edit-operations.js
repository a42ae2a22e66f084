/**
 * Turns the draft of an edit into the operation that is sent to the server, and adapts an operation
 * to changes that others made meanwhile. Nothing here touches the document.
 *
 * @typedef {{action: string, role?: string, text?: string, index?: number, start?: number,
 *   stop?: number, how?: string, count?: number, others?: boolean, roles?: string[],
 *   contains?: string, excludes?: string, keepSystem?: boolean, message?: any,
 *   tools?: ToolField[]}} EditDraft
 * @typedef {{at: number, field: "input" | "output" | "error", tool: string, before: string,
 *   value: string}} ToolField  what of a tool call or of its result can be edited; arguments as JSON
 * @typedef {Record<string, any>} Operation  or several, in `operations`
 */

/**
 * The operation of a draft; null while the draft is incomplete.
 *
 * @param {EditDraft} draft
 * @returns {Operation | null}
 */
export function operationOf(draft) {
  switch (draft.action) {
    case "replace":
      return isChanged(draft) && !unreadableField(draft) && (draft.text?.trim() || hasOtherParts(draft.message))
        ? { operation: "REPLACE", index: draft.index, message: rewritten(draft) }
        : null;
    case "resend":
      return draft.text?.trim() || hasOtherParts(draft.message) ? { operations: resent(draft) } : null;
    case "insert-before":
    case "insert-after": {
      if (!draft.text?.trim()) return null;
      const position = (draft.index ?? 0) + (draft.action === "insert-after" ? 1 : 0);
      return { operation: "INSERT", position, messages: [{ role: draft.role, content: draft.text }] };
    }
    case "delete":
      return isCount(draft.start) && isCount(draft.stop) && Number(draft.start) < Number(draft.stop)
        ? { operation: "DELETE", range: { start: draft.start, end: draft.stop } }
        : null;
    case "truncate":
      return truncated(draft);
    case "filter":
      return filtered(draft);
    case "clear":
      return { operation: "CLEAR", keepSystemMessage: draft.keepSystem !== false };
    default:
      return null;
  }
}

/** The operations that put a message in the place of one and cut what followed. @param {EditDraft} draft @returns {Operation[]} */
function resent(draft) {
  const index = draft.index ?? 0;
  const cut = { operation: "TRUNCATE", keepFirst: index + 1 };
  return isChanged(draft) ? [{ operation: "REPLACE", index, message: rewritten(draft) }, cut] : [cut];
}

/** @param {number | undefined} value */
const isCount = (value) => Number.isInteger(value) && Number(value) >= 0;

/** @param {EditDraft} draft @returns {Operation | null} */
function truncated({ how = "keepLast", count, role, others }) {
  if (!isCount(count)) return null;
  const within = role ? { role, ...(others ? { others: "keep" } : {}) } : {};
  return { operation: "TRUNCATE", [how]: count, ...within };
}

/** @param {EditDraft} draft @returns {Operation | null} */
function filtered({ roles = [], contains = "", excludes = "" }) {
  const operation = {
    operation: "FILTER",
    ...(roles.length && roles.length < 4 ? { roles } : {}),
    ...(lines(contains).length ? { contentContains: lines(contains) } : {}),
    ...(lines(excludes).length ? { contentExcludes: lines(excludes) } : {}),
  };
  return Object.keys(operation).length > 1 ? operation : null;
}

/** The lines of a text that are not blank. @param {string} text */
const lines = (text) => text.split("\n").filter((line) => line.trim());

/** @param {EditDraft} draft */
const isChanged = ({ message, role, text, tools = [] }) =>
  role !== message?.role || text !== editableText(message) || tools.some(({ before, value }) => before !== value);

/**
 * The tool calls and results of a message, as they can be edited.
 *
 * @param {any} message
 * @returns {ToolField[]}
 */
export function toolFields(message) {
  const content = Array.isArray(message?.content) ? message.content : [];
  return content.flatMap((/** @type {any} */ part, /** @type {number} */ at) => {
    const { tool, state } = part;
    const given = (/** @type {ToolField["field"]} */ field, /** @type {string} */ before) => [{ at, field, tool, before, value: before }];
    if (part.type === "tool-call") return given("input", JSON.stringify(part.input ?? {}, null, 2));
    if (part.type !== "tool") return [];
    if (state.status === "completed") return given("output", state.output ?? "");
    return state.status === "error" ? given("error", state.error ?? "") : [];
  });
}

/** The first field whose arguments are not a JSON object. @param {EditDraft} draft */
export function unreadableField({ tools = [] }) {
  return tools.find(({ field, value }) => field === "input" && parsedArguments(value) === null);
}

/** @param {string} text @returns {Record<string, any> | null} */
function parsedArguments(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/**
 * A part with what was edited of it.
 *
 * @param {any} part
 * @param {ToolField | undefined} edited
 */
function withField(part, edited) {
  if (!edited || edited.before === edited.value) return part;
  const { field, value } = edited;
  if (field !== "input") return { ...part, state: { ...part.state, [field]: value } };
  const input = parsedArguments(value);
  return { ...part, input, raw: JSON.stringify(input) };
}

/** @param {any} message */
function hasOtherParts(message) {
  return Array.isArray(message?.content) && message.content.some((/** @type {any} */ part) => part.type !== "text");
}

/**
 * The message with its new text and everything else unchanged. It is a new message, so it and
 * its parts have ids of their own.
 *
 * @param {EditDraft} draft
 */
function rewritten({ message, role, text = "", tools = [] }) {
  const { id: _id, timestamp: _timestamp, content, ...rest } = message ?? {};
  if (!Array.isArray(content)) return { ...rest, role, content: text };
  const id = newId();
  let placed = false;
  const parts = content.flatMap((/** @type {any} */ part, /** @type {number} */ at) => {
    const edited = withField(part, tools.find((one) => one.at === at));
    const owned = "messageID" in part ? { ...edited, id: newId(), messageID: id } : edited;
    if (part.type !== "text") return [owned];
    if (placed) return [];
    placed = true;
    return text ? [{ ...owned, text }] : [];
  });
  return { ...rest, role, id, content: placed ? parts : withText(parts, text, id, content) };
}

/**
 * @param {any[]} parts
 * @param {string} text
 * @param {string} messageID
 * @param {any[]} content
 */
function withText(parts, text, messageID, content) {
  if (!text) return parts;
  const sessionID = content.find((part) => part.sessionID)?.sessionID;
  return [{ type: "text", id: newId(), sessionID, messageID, text }, ...parts];
}

/** The text that can be edited: the text parts, not reasoning or tools. @param {any} message */
export function editableText(message) {
  const { content } = message ?? {};
  if (!Array.isArray(content)) return typeof content === "string" ? content : "";
  return content.filter((part) => part.type === "text").map((part) => part.text).join("\n\n");
}

/** A UUID of version 7: it begins with the time. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const now = Date.now();
  for (let place = 0; place < 6; place += 1) bytes[place] = Math.floor(now / 2 ** (8 * (5 - place))) % 256;
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/u, "$1-$2-$3-$4-$5");
}

/**
 * An operation as it has to be after others changed the conversation: its places moved along with
 * the messages they meant. `fate` says what became of those: "same", "moved", "changed" (somebody
 * replaced them) or "gone".
 *
 * @param {Operation} operation
 * @param {import("./edit-script.js").Step[]} steps  from the version it was made for to the newest
 * @returns {{operation: Operation | null, fate: "same" | "moved" | "changed" | "gone"}}
 */
export function rebase(operation, steps) {
  const where = placesAfter(steps);
  if (operation.operations) {
    const place = where(operation.operations.at(-1).keepFirst - 1);
    if (place === null) return { operation: null, fate: "gone" };
    const { index, changed } = place;
    const moved = operation.operations.map((/** @type {Operation} */ one) => (one.operation === "REPLACE" ? { ...one, index } : { ...one, keepFirst: index + 1 }));
    const same = operation.operations.at(-1).keepFirst === index + 1;
    return { operation: { operations: moved }, fate: changed ? "changed" : same ? "same" : "moved" };
  }
  if (operation.operation === "REPLACE") {
    const place = where(operation.index);
    if (place === null) return { operation: null, fate: "gone" };
    const fate = place.changed ? "changed" : place.index === operation.index ? "same" : "moved";
    return { operation: { ...operation, index: place.index }, fate };
  }
  if (operation.operation === "INSERT") {
    const before = operation.position > 0 ? where(operation.position - 1) : { index: -1 };
    const after = where(operation.position);
    const position = before ? before.index + 1 : after ? after.index : null;
    if (position === null) return { operation: null, fate: "gone" };
    return { operation: { ...operation, position }, fate: position === operation.position ? "same" : "moved" };
  }
  if (operation.operation === "DELETE") {
    const { start, end } = operation.range;
    const left = [];
    for (let index = start; index < end; index += 1) left.push(where(index));
    const places = left.filter((place) => place !== null).map((place) => place.index);
    if (!places.length) return { operation: null, fate: "gone" };
    const range = { start: places[0], end: places[places.length - 1] + 1 };
    const whole = places.length === end - start && range.end - range.start === places.length;
    const fate = !whole || left.some((place) => place?.changed) ? "changed" : range.start === start ? "same" : "moved";
    return { operation: { ...operation, range }, fate };
  }
  return { operation, fate: "same" };
}

/**
 * @param {import("./edit-script.js").Step[]} steps
 * @returns {(index: number) => {index: number, changed: boolean} | null}
 */
function placesAfter(steps) {
  return (index) => {
    for (const step of steps) {
      if (step.kind === "unchanged" && step.before <= index && index < step.before + step.count)
        return { index: step.after + index - step.before, changed: false };
      if (step.kind === "replaced" && step.before.index === index)
        return { index: step.after.index, changed: true };
    }
    return null;
  };
}
