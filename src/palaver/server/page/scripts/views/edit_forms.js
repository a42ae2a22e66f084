/**
 * The fields of each kind of edit. A form fills a draft as the reader types and says so; what the
 * draft means is none of its business.
 *
 * @typedef {import("./operations.js").Draft} Draft
 * @typedef {(draft: Draft, told: () => void, length: number) => import("../dom.js").Child[]} Form
 */

import { h } from "../dom.js";
import { t } from "../words.js";

const ROLES = Object.freeze(["system", "user", "assistant", "tool"]);

/** @type {Record<string, Form>} */
export const FORMS = {
  replace: (draft, told) => [role(draft, told), text(draft, told), otherParts(draft)],
  "insert-before": (draft, told) => [role(draft, told), text(draft, told)],
  "insert-after": (draft, told) => [role(draft, told), text(draft, told)],
  delete: range,
  truncate,
  filter,
  clear: (draft, told) => [
    h("p", null, t("views.edit.clearSays")),
    tick(t("views.edit.keepSystem"), draft.keepSystem !== false, (on) => {
      draft.keepSystem = on;
      told();
    }),
  ],
};

/** @type {Form} */
function role(draft, told) {
  return field(
    t("views.edit.role"),
    choice(ROLES.map((name) => [name, t(`views.role.${name}`)]), draft.role ?? "user", (value) => {
      draft.role = value;
      told();
    }),
  );
}

/** @type {Form} */
function text(draft, told) {
  return field(
    t("views.edit.text"),
    h("textarea", {
      rows: 8,
      value: draft.text ?? "",
      autofocus: true,
      class: "e-text",
      oninput: (/** @type {any} */ event) => {
        draft.text = event.target.value;
        told();
      },
    }),
  );
}

/** @param {Draft} draft */
function otherParts({ message }) {
  const others = Array.isArray(message?.content) ? message.content.filter((/** @type {any} */ part) => part.type !== "text") : [];
  return others.length ? h("p", { class: "muted small" }, t("views.edit.otherParts", { n: others.length })) : null;
}

/** Both ends are counted as the thread counts them, and both belong to it. @type {Form} */
function range(draft, told, length) {
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
        told();
      }),
      end("to", draft.stop - 1, (at) => {
        draft.stop = at + 1;
        told();
      }),
    ),
  ];
}

/** @type {Form} */
function truncate(draft, told, length) {
  const hows = ["keepLast", "keepFirst", "removeFirst", "removeLast"];
  const others = tick(t("views.edit.others"), draft.others === true, (on) => {
    draft.others = on;
    told();
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
          told();
        }),
      ),
      field(
        t("views.edit.count"),
        number(draft.count ?? NaN, { min: 0, max: length, autofocus: true }, (value) => {
          draft.count = value;
          told();
        }),
      ),
    ),
    field(
      t("views.edit.ofRole"),
      choice([["", t("views.edit.anyRole")], ...ROLES.map((name) => [name, t(`views.role.${name}`)])], draft.role ?? "", (value) => {
        draft.role = value || undefined;
        others.hidden = !value;
        told();
      }),
    ),
    others,
  ];
}

/** @type {Form} */
function filter(draft, told) {
  draft.roles ??= [...ROLES];
  const words = (/** @type {"contains" | "excludes"} */ name) =>
    field(
      t(`views.edit.${name}`),
      h("textarea", {
        rows: 2,
        value: draft[name] ?? "",
        oninput: (/** @type {any} */ event) => {
          draft[name] = event.target.value;
          told();
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
          told();
        }),
      ),
    ),
    words("contains"),
    words("excludes"),
  ];
}

/**
 * @param {string} label
 * @param {...import("../dom.js").Child} children
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
