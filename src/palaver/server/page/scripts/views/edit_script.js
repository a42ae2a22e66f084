/**
 * The way from one version to another as a list of steps that can be read from top to bottom.
 * Versions select from one log and never shuffle it, so the places of what is gone and what is new
 * are enough to know everything that stayed.
 *
 * @typedef {{role: string, content?: unknown, parts?: any[], id?: string}} Message
 * @typedef {{index: number, message: Message}} Entry
 * @typedef {{beforeLength: number, afterLength: number, removedCount: number, addedCount: number,
 *   removed: Entry[], added: Entry[]}} Difference  more may differ than is listed: the counts tell
 * @typedef {{kind: "kept", before: number, after: number, count: number}
 *   | {kind: "removed", entry: Entry}
 *   | {kind: "added", entry: Entry}
 *   | {kind: "replaced", before: Entry, after: Entry}} Step
 */

/**
 * As far as the difference is listed; beyond, nobody knows what stayed.
 *
 * @param {Difference} difference
 * @returns {Step[]}
 */
export function editScript({ beforeLength, afterLength, removedCount, addedCount, removed, added }) {
  /** @type {Step[]} */
  const steps = [];
  let [before, after, gone, fresh] = [0, 0, 0, 0];
  const moreGone = removedCount > removed.length;
  const moreNew = addedCount > added.length;
  while (gone < removed.length || fresh < added.length) {
    if ((moreGone && gone === removed.length) || (moreNew && fresh === added.length)) break;
    const kept = Math.min(
      gone < removed.length ? removed[gone].index - before : Infinity,
      fresh < added.length ? added[fresh].index - after : Infinity,
    );
    if (kept > 0) {
      steps.push({ kind: "kept", before, after, count: kept });
      before += kept;
      after += kept;
    }
    const out = [];
    while (gone < removed.length && removed[gone].index === before) {
      out.push(removed[gone]);
      gone += 1;
      before += 1;
    }
    const into = [];
    while (fresh < added.length && added[fresh].index === after) {
      into.push(added[fresh]);
      fresh += 1;
      after += 1;
    }
    if (!out.length && !into.length && kept <= 0) break; // answers that don't fit together
    steps.push(...paired(out, into));
  }
  const rest = moreGone || moreNew ? 0 : Math.min(beforeLength - before, afterLength - after);
  if (rest > 0) steps.push({ kind: "kept", before, after, count: rest });
  return steps;
}

/**
 * As many went as came, role for role: then each took the place of one.
 * @param {Entry[]} out
 * @param {Entry[]} into
 * @returns {Step[]}
 */
function paired(out, into) {
  const alike =
    out.length === into.length &&
    out.every((entry, place) => entry.message.role === into[place].message.role);
  if (alike || (out.length === 1 && into.length === 1))
    return out.map((before, place) => ({ kind: "replaced", before, after: into[place] }));
  return [
    ...out.map((entry) => /** @type {Step} */ ({ kind: "removed", entry })),
    ...into.map((entry) => /** @type {Step} */ ({ kind: "added", entry })),
  ];
}
