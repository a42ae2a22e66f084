/**
 * The card that shows what a version changed while its row has the pointer or the focus. Choosing
 * the row shows the same, so nothing depends on the card.
 */

import { h } from "../core/dom.js";

const PAUSE = 140;

export class HistoryCard {
  /** @param {import("./version-changes.js").VersionChanges} changes */
  constructor(changes) {
    this.changes = changes;
    this.timer = 0;
    this.element = h("div", { class: "h-card", id: "history-card", role: "tooltip", hidden: true });
  }

  /**
   * @param {HTMLElement | null} button
   * @param {import("./timeline.js").Row} row
   */
  soon(button, row) {
    clearTimeout(this.timer);
    if (button) this.timer = setTimeout(() => this.show(button, row), PAUSE);
  }

  /**
   * @param {HTMLElement} button
   * @param {import("./timeline.js").Row} row
   */
  async show(button, row) {
    const card = this.element;
    await this.changes.show(card, row.last, row.first - 1);
    if (!button.isConnected || !button.matches(":hover, :focus-visible")) return;
    card.hidden = false;
    const top = button.parentElement?.offsetTop ?? 0;
    const room = card.parentElement?.offsetHeight ?? 0;
    const below = top + button.offsetHeight + card.offsetHeight < room || top < card.offsetHeight;
    card.style.setProperty("--top", `${below ? top + button.offsetHeight : top - card.offsetHeight}px`);
    button.setAttribute("aria-describedby", card.id);
  }

  hide() {
    clearTimeout(this.timer);
    this.element.hidden = true;
  }
}
