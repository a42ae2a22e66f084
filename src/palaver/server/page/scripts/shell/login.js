/**
 * The login. The server knows a browser by a cookie and gives it in exchange for the token, which
 * is in the address that `palaver serve` prints or is pasted here.
 */

import { api, Problem } from "../core/api.js";
import { fill, h, icon } from "../core/dom.js";
import { t } from "../locales/locale.js";

/**
 * Exchange the token in the address, if there is one, for a cookie, and remove it from the address.
 *
 * @returns {Promise<boolean>}  whether there was one
 */
export async function exchangeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return false;
  history.replaceState(null, "", `${location.pathname}#/`);
  await api.post("session", { token: decodeURIComponent(found[1]) }).catch(() => null);
  return true;
}

export class Login extends HTMLElement {
  connectedCallback() {
    const field = /** @type {HTMLInputElement} */ (h("input", { type: "password", id: "token", autocomplete: "off", required: true }));
    const said = h("p", { class: "danger-text small", role: "alert" });
    const enter = async (/** @type {Event} */ event) => {
      event.preventDefault();
      try {
        await api.post("session", { token: field.value.trim().replace(/^.*#token=/, "") });
        this.dispatchEvent(new CustomEvent("pv-entered", { bubbles: true }));
      } catch (error) {
        const away = error instanceof Problem && error.away;
        said.textContent = t(away ? "failed.unreachable" : "login.wrong");
        field.select();
      }
    };
    fill(
      this,
      h(
        "main",
        { class: "login" },
        h(
          "form",
          { class: "card", onsubmit: enter },
          h("div", { class: "row" }, icon("lock"), h("h1", null, t("login.title"))),
          h("p", { class: "muted small" }, t("login.why")),
          h("label", { class: "field" }, h("span", null, t("login.token")), field),
          said,
          h("button", { type: "submit", class: "primary" }, t("login.enter")),
        ),
      ),
    );
    field.focus();
  }
}

customElements.define("pv-login", Login);
