/**
 * The form fields of each kind of edit. A form fills a draft as the reader types and calls
 * `changed`; `edit-operations.js` turns the draft into an operation.
 *
 * @typedef {import("./edit-operations.js").EditDraft} EditDraft
 * @typedef {(draft: EditDraft, changed: () => void, length: number) => import("../core/dom.js").Child[]} Form
 */

import { h } from "../core/dom.js";
import { t } from "../locales/locale.js";

const ROLES = Object.freeze(["system", "user", "assistant", "tool"]);

/** @type {Record<string, Form>} */
export const FORMS = {
  replace: (draft, changed) => [role(draft, changed), hasText(draft) ? text(draft, changed) : null, toolParts(draft, changed), otherParts(draft)],
  resend: (draft, changed) => [text(draft, changed), otherParts(draft)],
  "insert-before": (draft, changed) => [role(draft, changed), text(draft, changed)],
  "insert-after": (draft, changed) => [role(draft, changed), text(draft, changed)],
  delete: range,
  truncate,
  filter,
  clear: (draft, changed) => [
    h("p", null, t("views.edit.clearSays")),
    tick(t("views.edit.keepSystem"), draft.keepSystem !== false, (on) => {
      draft.keepSystem = on;
      changed();
    }),
  ],
};

/** @param {EditDraft} draft @param {() => void} changed */
function role(draft, changed) {
  return field(
    t("views.edit.role"),
    choice(ROLES.map((name) => [name, t(`views.role.${name}`)]), draft.role ?? "user", (value) => {
      draft.role = value;
      changed();
    }),
  );
}

/** @param {EditDraft} draft @param {() => void} changed */
function text(draft, changed) {
  return field(
    t("views.edit.text"),
    h("textarea", {
      rows: 8,
      value: draft.text ?? "",
      autofocus: true,
      class: "e-text",
      oninput: (/** @type {any} */ event) => {
        draft.text = event.target.value;
        changed();
      },
    }),
  );
}

/** Whether a message is one to be written in: one that only holds results is not. @param {EditDraft} draft */
const hasText = ({ text: words, tools = [] }) => Boolean(words) || !tools.some(({ field: name }) => name !== "input");

/** The arguments of calls, and the results. @param {EditDraft} draft @param {() => void} changed */
function toolParts({ tools = [] }, changed) {
  return tools.map((part) =>
    field(
      t(`views.edit.tool.${part.field}`, { tool: part.tool }),
      h("textarea", {
        rows: 6,
        value: part.value,
        spellcheck: "false",
        class: "e-text mono",
        oninput: (/** @type {any} */ event) => {
          part.value = event.target.value;
          changed();
        },
      }),
    ),
  );
}

/** @param {EditDraft} draft */
function otherParts({ message, tools = [] }) {
  const edited = new Set(tools.map(({ at }) => at));
  const others = Array.isArray(message?.content) ? message.content.filter((/** @type {any} */ part, /** @type {number} */ at) => part.type !== "text" && !edited.has(at)) : [];
  return others.length ? h("p", { class: "muted small" }, t("views.edit.otherParts", { n: others.length })) : null;
}

/** The first and the last message of a range, both included. @type {Form} */
function range(draft, changed, length) {
  draft.start ??= 0;
  draft.stop ??= draft.start + 1;
  const end = (/** @type {string} */ name, /** @type {number} */ value, /** @type {(at: number) => void} */ put) =>
    field(t(`views.edit.${name}`), number(value, { min: 0, max: length - 1 }, put));
  return [
    h("p", null, t("views.edit.deleteSays")),
    h(
      "div",
      { class: "e-pair" },
      end("from", draft.start, (at) => {
        draft.start = at;
        changed();
      }),
      end("to", draft.stop - 1, (at) => {
        draft.stop = at + 1;
        changed();
      }),
    ),
  ];
}

/** @type {Form} */
function truncate(draft, changed, length) {
  const hows = ["keepLast", "keepFirst", "removeFirst", "removeLast"];
  const others = tick(t("views.edit.others"), draft.others === true, (on) => {
    draft.others = on;
    changed();
  });
  others.hidden = !draft.role;
  return [
    h(
      "div",
      { class: "e-pair" },
      field(
        t("views.edit.how"),
        choice(hows.map((name) => [name, t(`views.edit.${name}`)]), draft.how ?? "keepLast", (value) => {
          draft.how = value;
          changed();
        }),
      ),
      field(
        t("views.edit.count"),
        number(draft.count ?? NaN, { min: 0, max: length, autofocus: true }, (value) => {
          draft.count = value;
          changed();
        }),
      ),
    ),
    field(
      t("views.edit.ofRole"),
      choice([["", t("views.edit.anyRole")], ...ROLES.map((name) => [name, t(`views.role.${name}`)])], draft.role ?? "", (value) => {
        draft.role = value || undefined;
        others.hidden = !value;
        changed();
      }),
    ),
    others,
  ];
}

/** @type {Form} */
function filter(draft, changed) {
  draft.roles ??= [...ROLES];
  const textFilter = (/** @type {"contains" | "excludes"} */ name) =>
    field(
      t(`views.edit.${name}`),
      h("textarea", {
        rows: 2,
        value: draft[name] ?? "",
        oninput: (/** @type {any} */ event) => {
          draft[name] = event.target.value;
          changed();
        },
      }),
      h("small", { class: "muted" }, t(`views.edit.${name}Hint`)),
    );
  return [
    h(
      "fieldset",
      { class: "e-roles" },
      h("legend", null, t("views.edit.keepRoles")),
      ROLES.map((name) =>
        tick(t(`views.role.${name}`), draft.roles?.includes(name) ?? true, (on) => {
          draft.roles = ROLES.filter((each) => (each === name ? on : draft.roles?.includes(each)));
          changed();
        }),
      ),
    ),
    textFilter("contains"),
    textFilter("excludes"),
  ];
}

/**
 * @param {string} label
 * @param {...import("../core/dom.js").Child} children
 */
export function field(label, ...children) {
  return h("label", { class: "field" }, h("span", null, label), ...children);
}

/**
 * @param {string[][]} options
 * @param {string} value
 * @param {(value: string) => void} put
 */
export function choice(options, value, put) {
  return h(
    "select",
    { onchange: (/** @type {any} */ event) => put(event.target.value) },
    options.map(([name, label]) => h("option", { value: name, selected: name === value }, label)),
  );
}

/**
 * @param {number} value
 * @param {Record<string, any>} props
 * @param {(value: number) => void} put
 */
export function number(value, props, put) {
  return h("input", {
    type: "number",
    inputmode: "numeric",
    step: 1,
    value: Number.isNaN(value) ? "" : String(value),
    ...props,
    oninput: (/** @type {any} */ event) => put(event.target.valueAsNumber),
  });
}

/**
 * @param {string} label
 * @param {boolean} checked
 * @param {(on: boolean) => void} put
 */
export function tick(label, checked, put) {
  return h(
    "label",
    { class: "e-tick" },
    h("input", { type: "checkbox", checked, onchange: (/** @type {any} */ event) => put(event.target.checked) }),
    h("span", null, label),
  );
}
