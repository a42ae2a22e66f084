/**
 * Turns the versions of a conversation into rows, from the newest to the oldest, each on the line
 * that led to the newest version or on the lane of what was left behind. Nothing here touches the
 * document.
 *
 * @typedef {import("../core/protocol.js").GetConversationsVersions} Versions
 * @typedef {Versions["items"][number]} Change
 * @typedef {Versions["forks"][number]} Fork
 * @typedef {{key: string, first: number, last: number, change: Change, count: number,
 *   added: number, onLine: boolean, forks: Fork[], edits: boolean, opensBatch: number|null}} Row
 */

const RETURNS = new Set(["undo", "redo", "rollback", "restore"]);
const QUIET = new Set(["append", "create", "fork", "mark", "unmark", "team_task", "prune", "erase"]);
const SHORTEST_GROUP = 4;

/** Whether a change brought back an earlier version. @param {string} kind */
export const isReturn = (kind) => RETURNS.has(kind);

/** Whether a change is an edit: neither an append, nor a return, nor a note beside the log. */
export const isEdit = (/** @type {string} */ kind) => !RETURNS.has(kind) && !QUIET.has(kind);

/**
 * The versions that led to the newest: back from it, and at a return straight to what it brought
 * back. The others were undone or left behind.
 * @param {Change[]} items
 * @returns {Set<number>}
 */
export function lineTo(items) {
  const byVersion = new Map(items.map((item) => [item.version, item]));
  /** @type {Set<number>} */
  const line = new Set();
  let version = items.length ? items[items.length - 1].version : -1;
  while (byVersion.has(version) && !line.has(version)) {
    line.add(version);
    version = byVersion.get(version)?.returns ?? version - 1;
  }
  return line;
}

/**
 * @param {Versions} versions
 * @param {Set<string>} opened  keys of groups that are shown one by one
 * @returns {Row[]}
 */
export function rowsOf(versions, opened) {
  const line = lineTo(versions.items);
  /** @type {Map<number, Fork[]>} */
  const forks = new Map();
  for (const fork of versions.forks) forks.set(fork.at, [...(forks.get(fork.at) ?? []), fork]);
  /** @type {Change[][]} */
  const runs = [];
  for (const change of versions.items) {
    const run = runs.at(-1);
    const last = run?.at(-1);
    const joins =
      run &&
      last &&
      change.kind === "append" &&
      last.kind === "append" &&
      line.has(change.version) === line.has(last.version) &&
      change.batch === last.batch &&
      !forks.has(change.version) &&
      !forks.has(last.version);
    if (joins) run.push(change);
    else runs.push([change]);
  }
  /** @type {Row[]} */
  const rows = [];
  let batch = versions.items[0]?.batch;
  for (const run of runs) {
    // going back changes the batch as well, but opens none
    const opens = run[0].batch !== batch && isEdit(run[0].kind) ? run[0].batch ?? null : null;
    batch = run[0].batch;
    const key = `run-${run[0].version}`;
    const grouped = run.length >= SHORTEST_GROUP && !opened.has(key);
    const parts = grouped ? [run] : run.map((change) => [change]);
    parts.forEach((part, place) => {
      const change = part[part.length - 1];
      rows.push({
        key: grouped ? key : `v${change.version}`,
        first: part[0].version,
        last: change.version,
        change,
        count: part.length,
        added: part.reduce((sum, each) => sum + each.added, 0),
        onLine: line.has(change.version),
        forks: forks.get(change.version) ?? [],
        edits: isEdit(change.kind),
        opensBatch: place === 0 ? opens : null,
      });
    });
  }
  return rows.reverse();
}
