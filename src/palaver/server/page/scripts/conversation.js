/**
 * The open conversation, kept up with the server: its head, and the step that runs in it. Others
 * read the state; only this file fetches it.
 */

import { api, Problem, url } from "./api.js";
import { live } from "./live.js";
import { failed, notify } from "./pv-toast.js";
import { go } from "./routes.js";
import { get, set, watch } from "./state.js";
import { t } from "./words.js";

/** The newest version that is known to be reached by appends alone. */
let appendedTo = 0;
let asked = 0;
/** The last question that was answered: what was asked before it is out of date. */
let answered = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** Keep up with the open conversation from now on. */
export function followConversation() {
  watch(["id"], opened);
  live.on("*", heard);
  live.on("resumed", opened);
  live.on("conversation.deleted", ({ id }) => id === get().id && leave());
  opened();
}

/** Read the head again, now. */
export async function refresh() {
  clearTimeout(timer);
  timer = undefined;
  const { id } = get();
  if (!id) return;
  const turn = ++asked;
  try {
    const head = await api.get(url`conversations/${id}`);
    if (turn < answered || id !== get().id) return;
    answered = turn;
    const { edits, head: before } = get();
    const appended = before !== null && head.version <= appendedTo;
    if (!appended) appendedTo = head.version;
    const edited = !appended && before?.version !== head.version;
    // what was chosen by its place is elsewhere now, or gone
    set(edited ? { head, edits: edits + 1, selection: null } : { head });
  } catch (error) {
    if (turn !== asked) return;
    if (error instanceof Problem && error.status === 404) leave();
    else failed(error, t("thread.failed"));
  }
}

/** It is not there, or no longer. */
function leave() {
  go({ id: null, view: null, at: null }, { replace: true });
  notify({ kind: "error", text: t("conversation.gone") });
}

async function opened() {
  const { id } = get();
  appendedTo = 0;
  await refresh();
  if (!id || id !== get().id) return;
  const step = await api.get(url`conversations/${id}/step`).catch(() => ({ running: false }));
  if (id !== get().id) return;
  set({ stepping: step.running });
  if (step.running) draft()?.begin({ ...step, model: labelOf(step.model) });
  else draft()?.stopped();
  await drawn();
}

/**
 * @param {import("./live.js").LiveData} data
 * @param {string} name
 */
function heard(data, name) {
  if (data.conversation !== get().id || !data.conversation) return;
  if (name === "step.started") {
    set({ stepping: true });
    started(data);
  } else if (name === "step.delta") {
    set({ stepping: true });
    draft()?.add(/** @type {any} */ (data));
  } else if (name === "team.turn") {
    draft()?.turn(String(data.member));
  } else if (name === "step.ended") {
    ended(data);
  } else if (data.version !== undefined) {
    if (name === "message.added" && data.version === appendedTo + 1) appendedTo = data.version;
    soon();
  }
}

/** The question is stored by now. @param {import("./live.js").LiveData} data */
async function started({ model }) {
  draft()?.begin({ model: labelOf(model) });
  await refresh();
  await drawn();
}

/** The answer is stored by now, or nothing is. @param {import("./live.js").LiveData} data */
async function ended({ outcome, error }) {
  if (outcome === "failed") notify({ kind: "error", text: t("step.failed"), detail: error?.message });
  await refresh();
  set({ stepping: false });
  draft()?.stopped();
  await drawn();
}

/** Once the thread shows what is stored: a draft that grows may be seen, one that is over goes. */
async function drawn() {
  const { id } = get();
  await /** @type {any} */ (document.querySelector("pv-thread"))?.drawn;
  if (id !== get().id) return;
  if (draft()?.running) draft().show();
  else draft()?.end();
}

/** Soon, and once for many events. */
function soon() {
  timer ??= setTimeout(refresh, 20);
}

/** A model as the reader knows it. @param {string | undefined} name */
function labelOf(name) {
  const known = get().info?.models ?? [];
  return known.find((/** @type {any} */ model) => model.name === name)?.label ?? name;
}

/** @returns {any} */
function draft() {
  return document.querySelector("pv-draft");
}
