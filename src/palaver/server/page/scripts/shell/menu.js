/**
 * A menu beside the button that opened it. The arrow keys move, Enter runs an entry, Escape or a
 * press elsewhere closes the menu, and the focus returns to the button.
 *
 * @typedef {object} Entry
 * @property {string} label
 * @property {string} [icon]
 * @property {string} [keys]     shown at the end, as a reminder
 * @property {boolean} [danger]
 * @property {boolean} [checked] makes it one of several to choose from
 * @property {boolean} [disabled] shown, but can't be chosen
 * @property {() => void} run
 */

import { h, icon } from "../core/dom.js";

export class Menu extends HTMLElement {
  /**
   * @param {HTMLElement} anchor
   * @param {(Entry | null)[]} entries  null draws a line
   */
  open(anchor, entries) {
    this.anchor = anchor;
    this.setAttribute("role", "menu");
    this.tabIndex = -1;
    this.append(...entries.map((entry) => (entry ? this.#entry(entry) : h("div", { role: "separator" }))));
    // into the same part of the page: beside an open dialog, nothing else could be reached
    (anchor.closest("dialog, main, [role=complementary]") ?? document.body).append(this);
    anchor.setAttribute("aria-expanded", "true");
    this.#place();
    this.addEventListener("keydown", (event) => this.#move(event));
    this.outside = (/** @type {Event} */ event) => {
      if (!this.contains(/** @type {Node} */ (event.target))) this.close(false);
    };
    document.addEventListener("pointerdown", this.outside, true);
    window.addEventListener("resize", this.outside);
    /** @type {HTMLElement | null} */ (this.querySelector("[role^=menuitem]"))?.focus();
  }

  /** @param {boolean} [back]  give the focus back */
  close(back = true) {
    document.removeEventListener("pointerdown", /** @type {any} */ (this.outside), true);
    window.removeEventListener("resize", /** @type {any} */ (this.outside));
    this.anchor?.setAttribute("aria-expanded", "false");
    this.remove();
    if (back) this.anchor?.focus();
  }

  /** @param {Entry} entry */
  #entry({ label, icon: name, keys, danger, checked, disabled, run }) {
    const choice = checked !== undefined;
    return h(
      "button",
      {
        type: "button",
        role: choice ? "menuitemradio" : "menuitem",
        "aria-checked": choice ? String(checked) : null,
        tabindex: -1,
        class: danger ? "danger-text" : null,
        "aria-disabled": disabled ? "true" : null,
        onclick: () => disabled || (this.close(), run()),
      },
      choice ? icon(checked ? "check" : "blank") : name ? icon(name) : null,
      h("span", { class: "grow" }, label),
      keys ? h("kbd", null, keys) : null,
    );
  }

  #place() {
    const at = /** @type {HTMLElement} */ (this.anchor).getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this;
    const left = Math.max(8, Math.min(at.right - width, innerWidth - width - 8));
    const below = at.bottom + 4 + height <= innerHeight;
    const top = below ? at.bottom + 4 : Math.max(8, at.top - 4 - height);
    this.style.setProperty("left", `${left}px`);
    this.style.setProperty("top", `${top}px`);
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const all = /** @type {HTMLElement[]} */ ([...this.querySelectorAll("[role^=menuitem]")]);
    const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined) all[to % all.length]?.focus();
    else if (event.key === "Escape" || event.key === "Tab") this.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

customElements.define("pv-menu", Menu);

/**
 * Open a menu beside an element.
 *
 * @param {HTMLElement} anchor
 * @param {(Entry | null)[]} entries
 */
export function openMenu(anchor, entries) {
  const open = /** @type {Menu | null} */ (document.querySelector("pv-menu"));
  open?.close(false);
  if (open?.anchor === anchor) return; // pressed again: closed
  /** @type {Menu} */ (document.createElement("pv-menu")).open(anchor, entries);
}
