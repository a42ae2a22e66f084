/**
 * One card for a tool call: its arguments, its state and how long it took, what was decided and by
 * whom, its result, or its error with the traceback for the developer. A call that waits has the
 * buttons of a decision: approve, approve always, change the arguments and approve, deny with a
 * reason. One that has run can run again, with its own arguments or with others.
 *
 * The card stands with the call until the result is there, and then with the result; the call is one
 * line from then on.
 */

import { api, url } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { canWrite, get } from "../core/state.js";
import { allowedTool, callOf, decide, withdraw } from "../core/tool-calls.js";
import { clock, duration, t } from "../locales/locale.js";
import { askText } from "../shell/dialog.js";
import { attempt } from "../shell/toast.js";
import { fileCard } from "./file-card.js";
import { versionShown } from "./message-actions.js";
import { mayAsk, startStep } from "./regenerate.js";
import { code, visible } from "./text.js";

/** @typedef {Record<string, any>} Part */

const LOOKS = {
  pending: { kind: "warn", icon: "clock" },
  running: { kind: "accent", icon: "tool" },
  completed: { kind: "good", icon: "check" },
  error: { kind: "bad", icon: "alert" },
};
/** The reason of an approval that a tool has for the whole conversation (tools/approval.py). */
const BY_TOOL = "its tool was approved for the whole conversation";

/**
 * A call in an assistant's message. Its state is taken from the ledger while it is there.
 * One that waits is shown as the ledger has it: the arguments beside the buttons are those that the
 * digest of an approval covers, however old the message on the page is.
 *
 * @param {Part} part
 * @returns {HTMLElement}
 */
export function toolCall(part) {
  const entry = callOf(part.id);
  if (!entry) return calledLine(part);
  const { status } = entry.state;
  const waits = status === "pending" && !!entry.digest && canWrite() && get().viewing === null && !get().stepping;
  const shown = waits ? { tool: entry.tool, ...entry.state } : part;
  return h(
    "div",
    { class: "tool-card", data: { call: part.callID, status } },
    h(
      "div",
      { class: "tool-head" },
      icon("tool"),
      h("code", { class: "tool-name clip" }, shown.tool),
      h("span", { class: "muted mono clip grow brief" }, ("title" in entry.state && entry.state.title) || visible(brief(shown.input))),
      stateChip(entry.state),
    ),
    body(folded(/** @type {any} */ (shown), waits)),
    waits ? approval(entry) : null,
  );
}

/** A call whose card stands with its result, or that never ran. @param {Part} part */
function calledLine(part) {
  return h(
    "details",
    { class: "fold tool-card called", data: { call: part.callID, status: "asked" } },
    h("summary", null, icon("right"), icon("tool"), h("code", { class: "tool-name clip" }, part.tool), h("span", { class: "muted mono clip brief" }, visible(brief(part.input)))),
    h("div", { class: "fold-body" }, argumentsOf(/** @type {any} */ (part))),
  );
}

/**
 * The result of a call, in a tool's message.
 *
 * @param {Part} part
 * @param {string[]} [orphans]  the calls that are not there
 * @returns {HTMLElement}
 */
export function toolResult(part, orphans = []) {
  const { state } = part;
  const orphan = orphans.includes(part.callID);
  const output = state.error ?? state.output ?? "";
  const cleared = state.time?.compacted;
  const failed = state.status === "error";
  return h(
    "div",
    { class: "tool-card result", data: { call: part.callID, status: state.status } },
    h(
      "div",
      { class: "tool-head" },
      icon("tool"),
      h("code", { class: "tool-name clip" }, part.tool),
      h("span", { class: "muted clip grow" }, state.title && state.title !== part.tool ? state.title : ""),
      orphan && state.status === "completed" ? h("span", { class: "chip warn" }, icon("alert"), t("tool.orphan")) : stateChip(state),
      orphan ? null : again(part),
    ),
    body(
      orphan ? h("p", { class: "muted small" }, t("tool.orphan.says")) : null,
      folded(state, false),
      decided(part.tool, state.metadata?.approval),
      cleared ? h("p", { class: "muted small" }, t("tool.cleared", { time: clock(cleared) })) : null,
      output ? code(output, t(failed ? "tool.failure" : "tool.output")) : null,
      failed && state.metadata?.approval?.verdict !== "deny" ? traceback(part) : null,
      state.attachments?.map(fileCard),
    ),
  );
}

/**
 * The state of a call, with the time it took.
 *
 * @param {Record<string, any>} state
 * @returns {HTMLElement}
 */
export function stateChip({ status, time }) {
  const look = LOOKS[/** @type {keyof typeof LOOKS} */ (status)] ?? LOOKS.pending;
  const took = time?.start && time.end ? duration(time.end - time.start) : "";
  const dot = status === "running" ? h("span", { class: "dot busy" }) : icon(look.icon);
  const began = time?.start ? t("tool.began", { time: clock(time.start) }) : null;
  return h("span", { class: `chip ${look.kind}`, title: began }, dot, t(`tool.${status}`), took ? ` · ${took}` : "");
}

/**
 * Who decided about a call, and when. Where that was for the whole conversation, it can be withdrawn.
 *
 * @param {string} tool
 * @param {{verdict: string, by?: string, at?: number, reason?: string} | undefined} approval
 */
function decided(tool, approval) {
  if (!approval) return null;
  const { verdict, by = t("tool.somebody"), at, reason } = approval;
  const standing = verdict === "approve" && reason === BY_TOOL;
  const text = t(`tool.decided.${standing ? "standing" : verdict}`, { by });
  const ends = (standing || verdict === "always") && allowedTool(tool) && canWrite() && get().viewing === null;
  return h(
    "p",
    { class: "muted small decided" },
    h("span", null, at ? `${text} · ${clock(at)}` : text),
    ends ? h("button", { type: "button", class: "plain strong small", onclick: () => attempt(() => withdraw(tool)) }, t("tool.withdraw")) : null,
  );
}

/** @param {import("../core/tool-calls.js").Entry} entry */
function approval(entry) {
  const { tool } = entry;
  const row = h("div", { class: "tool-foot" });
  /** @param {import("../core/tool-calls.js").Verdict} verdict */
  const settle = (verdict) => {
    const all = row.querySelectorAll("button");
    all.forEach((button) => (button.disabled = true));
    return attempt(() => decide(entry, verdict)).finally(() => {
      all.forEach((button) => (button.disabled = false));
    });
  };
  const deny = async () => {
    const reason = await askText({ title: t("tool.denyTitle", { tool }), label: t("tool.reason"), action: t("tool.deny") });
    if (reason !== null) await settle({ action: "deny", ...(reason.trim() ? { reason: reason.trim() } : {}) });
  };
  const change = async () => {
    const given = await askArguments(tool, entry.state.input, t("tool.run"));
    if (given) await settle({ action: "run", arguments: given });
  };
  row.append(
    h("span", { class: "small grow" }, t("tool.waits")),
    h("button", { type: "button", onclick: deny }, icon("x"), t("tool.deny")),
    h("button", { type: "button", onclick: change }, icon("edit"), t("tool.change")),
    h("button", { type: "button", title: t("tool.always.says", { tool }), onclick: () => settle({ action: "run", always: true }) }, icon("check"), t("tool.always")),
    h("button", { type: "button", class: "primary", onclick: () => settle({ action: "run" }) }, icon("play"), t("tool.run")),
  );
  return row;
}

/**
 * The buttons that run a call again, where this server has its tool.
 *
 * @param {Part} part
 */
function again(part) {
  const { tool, id, state } = part;
  if (!mayAsk() || !get().info?.tools.some(({ name }) => name === tool)) return null;
  const run = (/** @type {Record<string, any>} */ given) => attempt(() => startStep(url`calls/${id}/rerun`, given, versionShown()));
  const change = async () => {
    const given = await askArguments(tool, state.input, t("tool.rerun"));
    if (given) await run({ arguments: given });
  };
  const button = (/** @type {string} */ name, /** @type {string} */ label, /** @type {() => unknown} */ onclick) =>
    h("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick }, icon(name));
  return h("span", { class: "tool-again" }, button("again", t("tool.rerun"), () => run({})), button("edit", t("tool.rerunChanged"), change));
}

/**
 * Ask for the arguments of a call, as JSON. Returns null if the dialog was dismissed.
 *
 * @param {string} tool
 * @param {any} input
 * @param {string} action
 * @returns {Promise<Record<string, any> | null>}
 */
async function askArguments(tool, input, action) {
  const text = await askText({
    title: t("tool.changeTitle", { tool }),
    label: t("tool.arguments"),
    value: JSON.stringify(input ?? {}, null, 2),
    action,
    lines: 8,
    check: (value) => (readObject(value) ? null : t("tool.notObject")),
  });
  return text === null ? null : readObject(text);
}

/**
 * Where a call failed, for the developer. The server holds it for a while, and no model gets it.
 *
 * @param {Part} part
 */
function traceback({ id }) {
  const place = h("div", { class: "fold-body" });
  const load = async () => {
    if (place.childElementCount) return;
    const found = await attempt(() => api.get(url`conversations/${get().id}/calls/${id}/traceback`));
    if (!found) return;
    fill(place, found.traceback ? code(found.traceback, t("tool.traceback")) : h("p", { class: "muted small" }, t("tool.traceback.gone")));
    const lines = place.querySelector("pre");
    if (lines) lines.scrollTop = lines.scrollHeight; // the tool's own lines are the last ones
  };
  const fold = h("details", { class: "fold", ontoggle: () => fold.open && load() }, h("summary", null, icon("right"), h("span", null, t("tool.traceback"))), place);
  return fold;
}

/**
 * The JSON object of a text; null if it is none.
 *
 * @param {string} text
 * @returns {Record<string, any> | null}
 */
function readObject(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/** @param {...import("../core/dom.js").Child} children */
function body(...children) {
  return h("div", { class: "tool-body" }, ...children);
}

/**
 * The arguments of a call, folded.
 *
 * @param {{input: any, raw?: string}} part
 * @param {boolean} open
 */
function folded(part, open) {
  const summary = h("summary", null, icon("right"), h("span", null, t("tool.input")));
  return h("details", { class: "fold", open }, summary, argumentsOf(part));
}

/** @param {{input: any, raw?: string}} part */
function argumentsOf({ input, raw }) {
  const empty = !input || !Object.keys(input).length;
  return code(empty && raw ? raw : JSON.stringify(input ?? {}, null, 2), "JSON");
}

/** The arguments of a call, in one line. @param {any} input */
function brief(input) {
  const line = JSON.stringify(input ?? {});
  return line === "{}" ? "" : line.slice(1, -1).slice(0, 160);
}
