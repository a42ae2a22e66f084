/**
 * The difference between two versions as a list of steps, from top to bottom. A version selects
 * from one log and keeps its order, so the indexes of removed and added messages determine what
 * stayed.
 *
 * @typedef {Omit<import("../core/protocol.js").GetConversationsDiff, "before" | "after">} Difference  more may differ than is
 *   listed: the counts tell
 * @typedef {Difference["added"][number]} Entry
 * @typedef {{kind: "unchanged", before: number, after: number, count: number}
 *   | {kind: "removed", entry: Entry}
 *   | {kind: "added", entry: Entry}
 *   | {kind: "replaced", before: Entry, after: Entry}} Step
 */

/**
 * The steps, as far as the difference lists its messages.
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
    const unchanged = Math.min(
      gone < removed.length ? removed[gone].index - before : Infinity,
      fresh < added.length ? added[fresh].index - after : Infinity,
    );
    if (unchanged > 0) {
      steps.push({ kind: "unchanged", before, after, count: unchanged });
      before += unchanged;
      after += unchanged;
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
    if (!out.length && !into.length && unchanged <= 0) break; // answers that don't fit together
    steps.push(...paired(out, into));
  }
  const rest = moreGone || moreNew ? 0 : Math.min(beforeLength - before, afterLength - after);
  if (rest > 0) steps.push({ kind: "unchanged", before, after, count: rest });
  return steps;
}

/**
 * If as many messages were removed as added, with the same roles, each replaces one.
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
