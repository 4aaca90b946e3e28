"""What a page looks like, and what it must not lack in any of its looks."""

from __future__ import annotations

from pathlib import Path

from tests.browser.chromium import Chromium

LOOKS = {
    "light": {"width": 1280, "height": 900, "is_dark": False},
    "dark": {"width": 1280, "height": 900, "is_dark": True},
    "phone": {"width": 390, "height": 844, "is_dark": False},
}
CONTRAST = """
(() => {
  const channel = (v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const found = rgb(getComputedStyle(one).backgroundColor);
      if (found.length < 4 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const box = one.getBoundingClientRect();
    if (!own || !box.width || one.closest("svg, dialog, .skip, option")) continue;
    const a = light(rgb(getComputedStyle(one).color)), b = light(behind(one));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${one.outerHTML.slice(0, 60)}`);
  }
  return poor;
})()
"""
"""Texts that stand out less than WCAG AA wants."""

UNNAMED = """
[...document.querySelectorAll("input:not([type=hidden]), select, button, a, summary")]
.filter((one) => !(one.labels && one.labels.length) && !one.getAttribute("aria-label"))
.filter((one) => !one.textContent.trim()).map((one) => one.outerHTML.slice(0, 80))
"""
"""What can be used and has no name for who does not see it."""


def assert_whole_in_every_look(browser: Chromium, pictures: Path, name: str) -> None:
    """The page that is open, in light, in dark and on a phone, with a picture of each."""
    for look, wanted in LOOKS.items():
        browser.look(
            width=wanted["width"], height=wanted["height"], is_dark=bool(wanted["is_dark"])
        )
        browser.picture(pictures / f"{name}-{look}.png")
        # Nothing stands out at the side: only tables scroll, in their own boxes.
        assert browser.run("document.documentElement.scrollWidth") <= wanted["width"], look
        assert browser.run(CONTRAST) == [], look
        assert browser.run(UNNAMED) == [], look
