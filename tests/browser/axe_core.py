"""axe-core, the judge of what people can use who do not see a page, or see it otherwise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from tests.browser.chromium import Chromium
from tests.interop import jars

TOOLS: Final = ("npm",)
_HERE: Final = Path(__file__).parent / "axe"

_JUDGE: Final = """
axe.run().then((found) => JSON.stringify(found.violations.map((one) =>
  [one.impact, one.id, one.help, one.nodes.map((node) => node.html.slice(0, 120)).slice(0, 3)])))
"""


def script() -> Path:
    """The script; fetched once."""

    def install(target: Path) -> None:
        shutil.copy(_HERE / "package.json", target)
        flags = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--silent"]
        jars.run(["npm", "install", "--prefix", str(target), *flags])

    stamp = jars.digest(_HERE / "package.json")
    folder = jars._made(jars.BUILD, "axe", stamp, install)
    return folder / "node_modules" / "axe-core" / "axe.min.js"


def violations(browser: Chromium, axe: str) -> list[Any]:
    """What is wrong with the page that is open: how much, which rule, where."""
    browser.run(f"{axe}; true")
    found: list[Any] = json.loads(browser.run(_JUDGE))
    return found
