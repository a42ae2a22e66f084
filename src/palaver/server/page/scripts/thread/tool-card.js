/**
 * Tool calls: the arguments, the state and the result. A call that waits for approval has the
 * buttons for it: approve, change the arguments and approve, deny with a reason. The result says who
 * decided.
 */

import { h, icon } from "../core/dom.js";
import { canWrite, get } from "../core/state.js";
import { callOf, decide } from "../core/tool-calls.js";
import { clock, duration, t } from "../locales/locale.js";
import { askText } from "../shell/dialog.js";
import { attempt } from "../shell/toast.js";
import { fileCard } from "./file-card.js";
import { code, visible } from "./text.js";

/** @typedef {Record<string, any>} Part */

const LOOKS = {
  pending: { kind: "warn", icon: "clock" },
  running: { kind: "accent", icon: "tool" },
  completed: { kind: "good", icon: "check" },
  error: { kind: "bad", icon: "alert" },
};

/**
 * A call in an assistant's message. Its state is taken from the ledger while it is there.
 * One that waits is shown as the ledger has it: the arguments beside the buttons are those that the
 * digest of an approval covers, however old the message on the page is.
 *
 * @param {Part} part
 * @returns {HTMLElement}
 */
export function toolCall(part) {
  const entry = callOf(part.callID);
  const status = entry?.state.status;
  const waits =
    status === "pending" && !!entry?.digest && canWrite() && get().viewing === null && !get().stepping;
  const shown = waits ? { tool: entry.tool, ...entry.state } : part;
  return h(
    "div",
    { class: "tool-card", data: { call: part.callID, status: status ?? "asked" } },
    h(
      "div",
      { class: "tool-head" },
      icon("tool"),
      h("code", { class: "tool-name clip" }, shown.tool),
      h("span", { class: "muted mono clip grow brief" }, (entry && "title" in entry.state && entry.state.title) || visible(brief(shown.input))),
      status ? stateChip(entry.state) : null,
    ),
    body(folded(/** @type {any} */ (shown), waits)),
    waits ? approval(entry) : null,
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
    ),
    body(
      orphan ? h("p", { class: "muted small" }, t("tool.orphan.says")) : null,
      folded(state, false),
      decided(state.metadata?.approval),
      cleared ? h("p", { class: "muted small" }, t("tool.cleared", { time: clock(cleared) })) : null,
      output ? code(output, t(state.status === "error" ? "tool.failure" : "tool.output")) : null,
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
  return h("span", { class: `chip ${look.kind}` }, dot, t(`tool.${status}`), took ? ` · ${took}` : "");
}

/**
 * Who decided about a call, and when.
 *
 * @param {{verdict: string, by?: string, at?: number, reason?: string} | undefined} approval
 */
function decided(approval) {
  if (!approval) return null;
  const { verdict, by = t("tool.somebody"), at } = approval;
  const text = t(`tool.decided.${verdict}`, { by });
  return h("p", { class: "muted small" }, at ? `${text} · ${clock(at)}` : text);
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
    const text = await askText({
      title: t("tool.changeTitle", { tool }),
      label: t("tool.arguments"),
      value: JSON.stringify(entry.state.input ?? {}, null, 2),
      action: t("tool.run"),
      lines: 8,
      check: (value) => (readObject(value) ? null : t("tool.notObject")),
    });
    const given = text === null ? null : readObject(text);
    if (given) await settle({ action: "run", arguments: given });
  };
  row.append(
    h("span", { class: "small grow" }, t("tool.waits")),
    h("button", { type: "button", onclick: deny }, icon("x"), t("tool.deny")),
    h("button", { type: "button", onclick: change }, icon("edit"), t("tool.change")),
    h("button", { type: "button", class: "primary", onclick: () => settle({ action: "run" }) }, icon("play"), t("tool.run")),
  );
  return row;
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
 * The arguments of a call.
 *
 * @param {{input: any, raw?: string}} part
 * @param {boolean} open
 */
function folded({ input, raw }, open) {
  const empty = !input || !Object.keys(input).length;
  const text = empty && raw ? raw : JSON.stringify(input ?? {}, null, 2);
  const summary = h("summary", null, icon("right"), h("span", null, t("tool.input")));
  return h("details", { class: "fold", open }, summary, code(text, "JSON"));
}

/** The arguments of a call, in one line. @param {any} input */
function brief(input) {
  const line = JSON.stringify(input ?? {});
  return line === "{}" ? "" : line.slice(1, -1).slice(0, 160);
}
