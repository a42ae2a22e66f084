"""Whether everyone can use what is on the screen: axe's rules, and the contrast of controls."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
from playwright.sync_api import Error

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

__all__ = ["unreadable", "violations"]

_STATES: Final = {
    "hover": ["hover"],
    "active": ["hover", "active"],
    "focus": ["focus", "focus-visible"],
    "disabled": [],
}
_CONTROLS: Final = "button, .button, a[href], summary, input, select, textarea"
_AROUND: Final = ".message, .conversation"
"""What shows its controls only while the pointer is over it."""
_MEASURE: Final = """
([controls, part]) => {
  const numbers = (text) => text.match(/-?[\\d.]+/g).map(Number);
  const rgba = (text) => {
    if (!text.startsWith("color(")) return [...numbers(text), 1].slice(0, 4);
    const [r, g, b, a = 1] = numbers(text.replace("srgb", ""));
    return [r * 255, g * 255, b * 255, a];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((one, at) => one * a + under[at] * (1 - a));
  const linear = (one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [r, g, b] = colour.map((one) => linear(one / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (...colours) => {
    const [low, high] = colours.map(light).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  /** The contrast of an element's ink with all that lies below it, and how much of it is seen. */
  const measure = (element) => {
    const chain = [];
    for (let one = element; one; one = one.parentElement) chain.unshift(one);
    let [ground, behind, seen] = [[255, 255, 255], null, 1];
    for (const style of chain.map((one) => getComputedStyle(one))) {
      if (Number(style.opacity) < 1) [behind, seen] = [behind ?? ground, seen * style.opacity];
      ground = over(rgba(style.backgroundColor), ground);
      const tint = style.backgroundImage.match(/^linear-gradient\\(((rgba?|color)\\([^)]*\\))/);
      if (tint) ground = over(rgba(tint[1]), ground);
    }
    const ink = over(rgba(getComputedStyle(element).color), ground);
    const faded = (colour) => over([...colour, seen], behind ?? ground);
    return { seen, contrast: ratio(faded(ink), faded(ground)) };
  };
  const visible = (one) => one.checkVisibility({ visibilityProperty: true });
  const isText = (node) => node.nodeType === Node.TEXT_NODE && node.data.trim();
  const written = (one) => Boolean(one.value) || [...one.childNodes].some(isText);
  const found = [];
  for (const control of document.querySelectorAll(`${part} :is(${controls})`)) {
    if (!visible(control) || control.matches(".veil")) continue;
    const labels = [control, ...control.querySelectorAll("*")].filter(written);
    const parts = [...labels.map((one) => [one, control.disabled ? 3 : 4.5]),
                   ...[...control.querySelectorAll("svg.icon")].map((one) => [one, 3])];
    for (const [part, least] of parts.filter(([one]) => visible(one))) {
      const { seen, contrast } = measure(part);
      if (seen < 0.05 || contrast > least - 0.01) continue;
      const name = control.getAttribute("aria-label") ?? control.textContent.trim().slice(0, 40);
      found.push(`${control.tagName}.${control.className} ${name}: ${contrast.toFixed(2)}`);
    }
  }
  return found;
}
"""
_DISABLE: Final = """(controls) => document.querySelectorAll(controls).forEach((one) => {
  if (one.disabled === false) [one.disabled, one.dataset.enabled] = [true, ""];
})"""
_ENABLE: Final = """() => document.querySelectorAll("[data-enabled]").forEach((one) => {
  one.disabled = false;
  one.removeAttribute("data-enabled");
})"""


def violations(page: Page, part: str | None = None) -> list[str]:
    """What axe has against a part of the page, or all of it.

    Its copy of the styles is left out: it would write them into the page, which the page's policy
    forbids.
    """
    found = Axe().run(page, context=part, options={"preload": False}).response["violations"]
    return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]


def unreadable(page: Page, part: str = "body") -> dict[str, list[str]]:
    """The controls in a part of the page that can't be read, by the state that they are in.

    A label has to have a contrast of 4.5 : 1, an icon 3 : 1, and so has a label that is disabled.
    """
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    found: dict[str, list[str]] = {}
    for state, pseudo in _STATES.items():
        _force(session, part, pseudo)
        if state == "disabled":
            page.evaluate(_DISABLE, f"{part} :is({_CONTROLS})")
        found[state] = page.evaluate(_MEASURE, [_CONTROLS, part])
    page.evaluate(_ENABLE)
    session.detach()
    return {state: bad for state, bad in found.items() if bad}


def _force(session: CDPSession, part: str, pseudo: list[str]) -> None:
    root: dict[str, Any] = session.send("DOM.getDocument", {"depth": 0})["root"]
    asked = {"nodeId": root["nodeId"], "selector": f"{part} :is({_CONTROLS}, {_AROUND})"}
    for node in session.send("DOM.querySelectorAll", asked)["nodeIds"]:
        with suppress(Error):  # it was drawn anew meanwhile
            session.send("CSS.forcePseudoState", {"nodeId": node, "forcedPseudoClasses": pseudo})
