/**
 * The open conversation: its head and the step that runs in it, updated from the server. Only this
 * file fetches them; all others read the state.
 */

import { t } from "../locales/locale.js";
import { failed, notify } from "../shell/toast.js";
import { setFailure } from "../thread/failed-step.js";
import { api, Problem, url } from "./api.js";
import { live } from "./live-events.js";
import { go } from "./routes.js";
import { get, set, watch } from "./state.js";

/** The newest version that is known to be reached by appends alone. */
let appendedTo = 0;
let asked = 0;
/** The number of the newest request that was answered; older responses are ignored. */
let answered = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
/** How often the step of another process is looked at, in milliseconds: it sends no events here. */
const LOOK = 1000;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let look;
/** The number of the newest request for the step. */
let looked = 0;
/** How much of an answer is read out, in characters; the thread has the rest. */
const SPOKEN = 500;
let looking = false;

/** Follow the open conversation from now on. */
export function followConversation() {
  watch(["id"], reload);
  live.on("*", receive);
  live.on("resumed", reload);
  live.on("conversation.deleted", ({ id }) => id === get().id && leave());
  reload();
}

/** Fetch the head now. */
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
    const known = get().settings;
    const settings = JSON.stringify(head.settings) === JSON.stringify(known) ? known : head.settings;
    // what was chosen by its place is elsewhere now, or gone
    set(edited ? { head, settings, edits: edits + 1, selection: null } : { head, settings });
  } catch (error) {
    if (turn !== asked) return;
    if (error instanceof Problem && error.status === 404) leave();
    else failed(error, t("thread.failed"));
  }
}

/** Leave the conversation, since it does not exist. */
function leave() {
  go({ id: null, view: null, at: null }, { replace: true });
  notify({ kind: "error", text: t("conversation.gone") });
}

async function reload() {
  const { id } = get();
  appendedTo = 0;
  await refresh();
  if (id && id === get().id) await readStep();
}

/** Read whether a step runs, and what has arrived of it; that of another process again and again. */
async function readStep() {
  clearTimeout(look);
  const { id, stepping } = get();
  const turn = ++looked;
  /** @type {import("./protocol.js").GetConversationsStep | null} */
  const step = await api.get(url`conversations/${id}/step`).catch(() => null);
  if (id !== get().id || turn !== looked) return;
  if (step?.running) {
    draft()?.begin({ ...step, model: labelOf(step.model) });
    set({ stepping: true });
  } else if (step) {
    if (stepping) await refresh(); // its answer may be stored, and the news of it on the way
    set({ stepping: false });
    draft()?.stopped();
  }
  await settleDraft();
  if (step?.elsewhere && turn === looked) look = setTimeout(readStep, LOOK);
}

/**
 * @param {import("./live-events.js").LiveData} data
 * @param {string} name
 */
function receive(data, name) {
  if (data.conversation !== get().id || !data.conversation) return;
  if (name === "step.started") {
    set({ stepping: true });
    stepStarted(data);
  } else if (name === "step.delta") {
    set({ stepping: true });
    if (draft()?.add(/** @type {any} */ (data)) === false) lookSoon();
  } else if (name === "team.turn") {
    draft()?.turn(String(data.member));
  } else if (name === "step.ended") {
    stepEnded(data);
  } else if (data.version !== undefined) {
    if (name === "message.added" && data.version === appendedTo + 1) appendedTo = data.version;
    soon();
  }
}

/** Begin the draft. The question is already stored when the server sends this. @param {import("./live-events.js").LiveData} data */
async function stepStarted({ conversation, step, model }) {
  setFailure(String(conversation), null);
  draft()?.begin({ step: String(step), model: labelOf(model) });
  await refresh();
  await settleDraft();
}

/** End the draft. The answer is already stored when the server sends this. @param {import("./live-events.js").LiveData} data */
async function stepEnded({ conversation, step, outcome, error }) {
  const shown = draft();
  if (shown?.step && shown.step !== step) return; // the end of an earlier one
  looked++; // an answer on its way says that it runs
  clearTimeout(look);
  if (outcome === "failed") setFailure(String(conversation), { detail: error?.message ?? "", stored: true });
  await refresh();
  set({ stepping: false });
  shown?.stopped();
  await settleDraft();
  if (outcome === "answered" && conversation === get().id) announce();
}

/** Have a screen reader say the answer that is there. */
function announce() {
  const spoken = document.getElementById("spoken");
  const answer = document.querySelector("pv-message[data-role=assistant]:last-of-type .message-body");
  if (spoken) spoken.textContent = t("step.answered", { text: (answer?.textContent ?? "").slice(0, SPOKEN) });
}

/** Wait until the thread shows what is stored; then show a draft that grows, and remove one that has ended. */
async function settleDraft() {
  const { id } = get();
  await document.querySelector("pv-thread")?.drawn;
  if (id !== get().id) return;
  const shown = draft();
  if (shown?.running) shown.show();
  else shown?.end();
}

/** Read the step soon, once for many deltas that come after a gap. */
function lookSoon() {
  if (looking) return;
  looking = true;
  setTimeout(async () => {
    await readStep();
    looking = false;
  }, 20);
}

/** Fetch the head soon, once for many events. */
function soon() {
  timer ??= setTimeout(refresh, 20);
}

/** The label of a model. @param {string | undefined} name */
function labelOf(name) {
  const known = get().info?.models ?? [];
  return known.find((model) => model.name === name)?.label ?? name;
}

function draft() {
  return document.querySelector("pv-draft");
}
