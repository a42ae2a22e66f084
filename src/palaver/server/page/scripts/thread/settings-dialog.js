/**
 * The dialog for what a conversation's steps use: its system prompt, the parameters of the model, and
 * a switch for each tool. The prompt is the first message, and changing it is an edit like any other;
 * the rest is stored beside the messages and makes no version.
 *
 * @typedef {import("../core/api.js").Item} Item
 */

import { api, Problem, url } from "../core/api.js";
import { h } from "../core/dom.js";
import { refresh } from "../core/open-conversation.js";
import { allowedTools, get } from "../core/state.js";
import { t } from "../locales/locale.js";
import { editableText, operationOf } from "../panel/edit-operations.js";
import { buttons, dialog } from "../shell/dialog.js";

const EFFORTS = Object.freeze(["none", "minimal", "low", "medium", "high", "xhigh", "max"]);
/** The parameters that are numbers, with what their fields allow. */
const NUMBERS = Object.freeze({
  temperature: { min: 0, step: "any" },
  top_p: { min: 0, max: 1, step: "any" },
  max_tokens: { min: 1, step: 1 },
});

/** Open the dialog for the open conversation. */
export async function openSettings() {
  const { id, settings, head } = get();
  if (!id || !settings || !head) return;
  const read = async () => {
    const { version, items } = await api.get(url`conversations/${id}/messages`, { query: { start: 0, stop: 1 } });
    return { version, first: /** @type {Item | undefined} */ (items[0]) };
  };
  let { version, first } = await read();
  const prompt = promptField(first);
  const options = optionFields(settings.options);
  const tools = toolSwitches();
  const problem = h("p", { class: "e-problem", role: "alert", hidden: true });
  const asked = dialog();

  const tell = (/** @type {string} */ text) => {
    problem.hidden = false;
    problem.textContent = text;
  };

  /** Change the prompt, in the newest version; false where others changed the prompt itself. @returns {Promise<boolean>} */
  const put = async () => {
    const operation = prompt.operation();
    if (!operation) return true;
    try {
      await api.post(url`conversations/${id}/operations`, { operation }, { version });
      return true;
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 412) throw error;
    }
    ({ version, first } = await read());
    return prompt.follow(first) && put();
  };

  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const changed = { ...options.changed(), ...tools.changed() };
    try {
      if (Object.keys(changed).length) await api.patch(url`conversations/${id}`, { settings: changed });
      if (!(await put())) return tell(t("settings.changed", { text: prompt.before() }));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      return tell(error.status === 0 ? t("failed.unreachable") : error.message);
    }
    asked.close("yes");
    await refresh();
  };

  const body = h(
    "div",
    { class: "dialog-body settings" },
    get().stepping ? h("p", { class: "notice", role: "status" }, t("settings.stepping")) : null,
    prompt.element,
    options.element,
    tools.element,
    problem,
  );
  const form = h("form", { onsubmit: save }, body, buttons(asked, h("button", { type: "submit", class: "primary" }, t("save"))));
  await asked.ask({ title: t("settings.title"), wide: true }, form);
}

/** The system prompt, which is the first message if that is a system's. @param {Item | undefined} first */
function promptField(first) {
  const promptOf = (/** @type {Item | undefined} */ item) => (item?.message.role === "system" ? item.message : null);
  let message = promptOf(first);
  let before = editableText(message);
  /** Take what is there now; whether it is what was there before. @param {Item | undefined} now */
  const follow = (now) => {
    const was = before;
    message = promptOf(now);
    before = editableText(message);
    return before === was;
  };
  const field = h("textarea", { value: before, rows: 5, autofocus: true });
  const operation = () => {
    const text = field.value;
    if (text.trim() === before.trim()) return null;
    if (!message) return { operation: "INSERT", position: 0, messages: [{ role: "system", content: text }] };
    if (!text.trim()) return { operation: "DELETE", range: { start: 0, end: 1 } };
    return operationOf({ action: "replace", index: 0, message, role: "system", text });
  };
  return { element: h("label", { class: "field" }, h("span", null, t("settings.prompt")), field, hint("settings.prompt.hint")), operation, follow, before: () => before };
}

/** The parameters; those that have no field here stay as they are. @param {Record<string, any>} before */
function optionFields(before) {
  const own = t("settings.own");
  const numbers = Object.entries(NUMBERS).map(([name, allowed]) => {
    const field = h("input", { type: "number", value: before[name] ?? "", placeholder: own, ...allowed });
    return { name, field, value: () => (field.value === "" ? undefined : Number(field.value)) };
  });
  const effort = h("select", null, [["", own], ...EFFORTS.map((name) => [name, name])].map(([value, label]) => h("option", { value, selected: value === (before.effort ?? "") }, label)));
  const fields = [...numbers, { name: "effort", field: effort, value: () => effort.value || undefined }];
  const changed = () => {
    const given = Object.fromEntries(fields.map(({ name, value }) => [name, value()]));
    const options = Object.fromEntries(Object.entries({ ...before, ...given }).filter(([, value]) => value !== undefined));
    const same = fields.every(({ name }) => options[name] === before[name]);
    return same ? {} : { options };
  };
  const element = h(
    "fieldset",
    null,
    h("legend", null, t("settings.parameters")),
    h("div", { class: "settings-fields" }, fields.map(({ name, field }) => h("label", { class: "field" }, h("span", null, t(`settings.${name}`)), field))),
    hint("settings.parameters.hint"),
  );
  return { element, changed };
}

/** A switch for each tool of the server. */
function toolSwitches() {
  const known = get().info?.tools ?? [];
  const allowed = allowedTools();
  const isOn = (/** @type {string} */ name) => (typeof allowed === "boolean" ? allowed : allowed.includes(name));
  const switches = known.map(({ name }) => h("input", { type: "checkbox", name, checked: isOn(name) }));
  const changed = () => {
    const on = switches.filter(({ checked }) => checked).map(({ name }) => name);
    if (switches.every(({ name, checked }) => checked === isOn(name))) return {};
    return { tools: on.length === known.length ? true : on.length ? on : false };
  };
  const rows = known.map(({ name, description }, at) =>
    h("label", { class: "settings-tool" }, switches[at], h("span", null, h("span", { class: "mono small" }, name), h("span", { class: "muted small" }, ` ${description.split("\n")[0]}`))),
  );
  return { element: known.length ? h("fieldset", null, h("legend", null, t("settings.tools")), rows) : null, changed };
}

/** @param {string} key */
function hint(key) {
  return h("small", { class: "muted" }, t(key));
}
