/**
 * The controls below the text of the chat box, which say how the next step is asked: files to attach,
 * the settings of the conversation, the model, and the switch for tools. The model and the switch are
 * choices of this browser; a conversation that has a choice of tools of its own goes before.
 */

import { api, url } from "../core/api.js";
import { h, icon } from "../core/dom.js";
import { refresh } from "../core/open-conversation.js";
import { registerCommand } from "../core/registry.js";
import { allowedTools, chosenModel, get, isSmall, set } from "../core/state.js";
import { t } from "../locales/locale.js";
import { openMenu } from "../shell/menu.js";
import { attempt } from "../shell/toast.js";

const TOOLS_KEY = "palaver.tools";
const MODEL_KEY = "palaver.model";

/** Choose what was chosen in this browser before. */
export function restoreChoices() {
  const chosen = localStorage.getItem(MODEL_KEY);
  if (models().some(({ name, ready }) => name === chosen && ready)) set({ model: chosen });
  chooseTools();
}

/** Switch tools as they were switched in this browser before; at first they are on, but for the small model. */
export function chooseTools() {
  const said = localStorage.getItem(TOOLS_KEY);
  set({ tools: said ? said !== "off" : !isSmall(chosenModel()) });
}

/** The browser's switch for tools, for a step; nothing where the conversation has a choice of its own. */
export function usualTools() {
  const { settings, tools } = get();
  return settings?.tools === null ? { tools } : {};
}

/** The controls, in order. @param {(files: Iterable<File>) => void} attach  what is done with chosen files */
export function controls(attach) {
  return [attachButton(attach), settingsButton(), modelButton(), toolsButton()];
}

function models() {
  return get().info?.models ?? [];
}

/** @param {(files: Iterable<File>) => void} attach */
function attachButton(attach) {
  const choose = () => {
    const field = /** @type {HTMLInputElement} */ (h("input", { type: "file", multiple: true }));
    field.addEventListener("change", () => attach(field.files ?? []));
    field.click();
  };
  return h("button", { type: "button", class: "quiet", "aria-label": t("attach.choose"), title: t("attach.choose"), data: { focus: "attach" }, onclick: choose }, icon("clip"));
}

/** Open the settings of the conversation. */
const openSettings = () =>
  attempt(async () => {
    await (await import("./settings-dialog.js")).openSettings();
    // the button that opened it was drawn again meanwhile
    /** @type {HTMLElement | null} */ (document.querySelector(".composer-foot [data-focus=settings]"))?.focus();
  });

registerCommand("settings.open", { label: "settings.open", group: "conversation", icon: "tune", open: true, writes: true, when: () => get().viewing === null, run: openSettings });

function settingsButton() {
  const { settings } = get();
  const own = settings !== null && (Object.keys(settings.options).length > 0 || settings.tools !== null);
  return h("button", { type: "button", class: "quiet", "aria-label": t("settings.open"), title: t("settings.open"), "aria-haspopup": "dialog", data: { focus: "settings", own: own ? "yes" : null }, onclick: openSettings }, icon("tune"));
}

function modelButton() {
  const model = chosenModel();
  return h(
    "button",
    {
      type: "button",
      class: "plain model",
      "aria-haspopup": "menu",
      "aria-expanded": "false",
      "aria-label": t("composer.model", { name: model?.label ?? t("composer.nomodel") }),
      onclick: (/** @type {Event} */ event) => chooseModel(/** @type {HTMLElement} */ (event.currentTarget)),
    },
    h("span", { class: "clip" }, model?.label ?? t("composer.nomodel")),
    model && !model.ready ? h("span", { class: "chip warn" }, model.why ?? t("composer.notready")) : null,
    icon("chevron"),
  );
}

/** @param {HTMLElement} anchor */
function chooseModel(anchor) {
  const chosen = chosenModel();
  const entries = models().map(({ name, label, ready, why }) => ({
    label: ready ? label : `${label} — ${why ?? t("composer.notready")}`,
    checked: name === chosen?.name,
    disabled: !ready,
    run: () => {
      localStorage.setItem(MODEL_KEY, name);
      set({ model: name });
    },
  }));
  openMenu(anchor, entries);
}

function toolsButton() {
  const known = (get().info?.tools ?? []).map(({ name }) => name);
  if (!known.length) return null;
  const allowed = allowedTools();
  const used = typeof allowed === "boolean" ? (allowed ? known : []) : known.filter((name) => allowed.includes(name));
  const some = used.length > 0 && used.length < known.length;
  return h(
    "button",
    {
      type: "button",
      class: "plain",
      "aria-pressed": String(used.length > 0),
      title: (used.length ? used : known).join(", "),
      onclick: () => switchTools(used.length === 0),
    },
    icon("tool"),
    t("composer.tools"),
    some ? h("span", { class: "tiny" }, t("composer.tools.some", { n: used.length, all: known.length })) : null,
  );
}

/** Switch all tools: in the conversation if it has a choice of its own, else in this browser. @param {boolean} tools */
async function switchTools(tools) {
  const { id, settings } = get();
  if ((settings?.tools ?? null) === null) {
    localStorage.setItem(TOOLS_KEY, tools ? "on" : "off");
    set({ tools });
    return;
  }
  await attempt(() => api.patch(url`conversations/${id}`, { settings: { tools } }));
  await refresh();
}
