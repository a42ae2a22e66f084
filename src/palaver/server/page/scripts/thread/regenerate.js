/**
 * Asking again: another answer in the place of one, another question in the place of one, a tool call
 * once more. Each is a step that begins with an edit, so the version before it has what it replaced.
 *
 * @typedef {import("../core/api.js").Item} Item
 */

import { api, url } from "../core/api.js";
import { refresh } from "../core/open-conversation.js";
import { registerAction } from "../core/registry.js";
import { canWrite, get, set } from "../core/state.js";
import { t } from "../locales/locale.js";
import { attempt, notify } from "../shell/toast.js";
import { usualTools } from "./composer-controls.js";
import { setFailure } from "./failed-step.js";
import { versionShown } from "./message-actions.js";

/**
 * Start a step in the open conversation, and show it. Throws a `Problem` if it was refused: then
 * nothing has changed.
 *
 * @param {string} path      under the conversation's own
 * @param {Record<string, any>} body
 * @param {number} [version] the version that has to be the newest
 */
export async function startStep(path, body, version) {
  const { id, model, stepping } = get();
  if (!id) return;
  set({ stepping: true });
  setFailure(id, null);
  try {
    await api.post(`${url`conversations/${id}`}/${path}`, { ...(model ? { model } : {}), ...body }, { version });
  } catch (error) {
    if (get().id === id) set({ stepping });
    throw error;
  }
  document.querySelector("pv-thread")?.toEnd();
  refresh();
}

/**
 * Apply operations as one version, and let the model answer.
 *
 * @param {Record<string, any>[]} operations
 * @param {number | undefined} version
 */
export function askAgain(operations, version) {
  return startStep("step", { ...usualTools(), ...(operations.length ? { operations } : {}) }, version);
}

/**
 * How many messages come before another answer: all before an answer, or up to a question.
 *
 * @param {Item} item
 */
export function countBefore({ index, message }) {
  return message.role === "assistant" ? index : index + 1;
}

/** What cuts the conversation after so many messages; nothing if there are no more. @param {number} keep */
export function cutAfter(keep) {
  const length = document.querySelector("pv-thread")?.length ?? 0;
  return keep < length ? [{ operation: "TRUNCATE", keepFirst: keep }] : [];
}

/** Whether a model can be asked again here: not amid a step, and not in the place of a team. */
export function mayAsk() {
  return canWrite() && get().viewing === null && !get().stepping && !document.querySelector("pv-team-box")?.team;
}

/** Whether a message is a question, or an answer to one, that a model can be asked about again. @param {Item} item */
function mayAnswer(item) {
  return mayAsk() && ["user", "assistant"].includes(item.message.role) && countBefore(item) > 0;
}

/**
 * The version on the screen; undefined, with a notice, where the message has lost its place.
 *
 * @param {Item} item
 */
function versionOf(item) {
  const version = versionShown(item);
  if (version === undefined) notify({ kind: "error", text: t("views.conflict.title") });
  return version;
}

// the buttons of messages are drawn before it is known whether there is a team
document.addEventListener("pv-team", () => document.querySelector("pv-thread")?.rows.redraw());

registerAction("regenerate", {
  label: "again.regenerate",
  icon: "again",
  keys: "R",
  quick: true,
  when: ({ item }) => mayAnswer(item),
  run: async ({ item }) => {
    const version = versionOf(item);
    if (version !== undefined) await attempt(() => askAgain(cutAfter(countBefore(item)), version));
  },
});

registerAction("resend", {
  label: "again.resend",
  icon: "send",
  keys: "E",
  when: ({ item }) => mayAsk() && item.message.role === "user",
  run: ({ item }) => {
    const version = versionOf(item);
    if (version === undefined) return;
    attempt(async () => {
      const { openEditor } = await import("../panel/open-editor.js");
      await openEditor({ action: "resend", item, version });
    });
  },
});

registerAction("compare-answers", {
  label: "again.compare",
  icon: "diff",
  keys: "C",
  when: ({ item }) => mayAnswer(item),
  run: ({ item }) => {
    const version = versionOf(item);
    if (version === undefined) return;
    attempt(async () => {
      const { openCompare } = await import("./compare.js");
      await openCompare(item, version);
    });
  },
});
