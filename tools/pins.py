"""Pins every dependency with hashes: `python tools/pins.py` writes the requirements-*.txt files.

A file starts with those that it builds on (`-r`), and has only what they lack. Pins that are there
are kept; `--upgrade NAME` takes the newest release of a package instead. It needs pip-tools.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LAYERS: Final[dict[str, tuple[str, ...]]] = {
    "requirements": (),
    "requirements-console": ("requirements",),
    "requirements-check": ("requirements",),
    "requirements-dev": ("requirements-console", "requirements-check"),
    "requirements-spark-base": ("requirements-dev",),
    "requirements-spark": ("requirements-spark-base",),
    "requirements-spark-4.1": ("requirements-spark-base",),
    "requirements-spark-4.3": ("requirements-spark-base",),
    "requirements-audit": (),
    "requirements-deploy": (),
    "requirements-docs": (),
}
"""Each file, and those that it builds on."""

# The extras must stay: without them pip treats `coverage[toml]` as one more package, and takes its
# newest release, for which there is no hash.
_FLAGS: Final = ("--quiet", "--generate-hashes", "--no-header", "--no-strip-extras",
                 "--allow-unsafe", "--no-emit-options")  # fmt: skip
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==\S+", re.MULTILINE)

Blocks = dict[str, str]
"""By the name of a package, its pin with hashes, and what it is there for."""


def blocks(text: str) -> Blocks:
    """The pins of a file, without those of files that it builds on."""
    starts = [found.start() for found in _PINNED.finditer(text)]
    parts = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    return {part[: re.search(r"[\[=]", part).start()]: part for part in parts}  # type: ignore[union-attr]


def whole(name: str) -> Blocks:
    """The pins of a file and of those that it builds on."""
    found: Blocks = {}
    for base in LAYERS[name]:
        found |= whole(base)
    path = ROOT / f"{name}.txt"
    return found | (blocks(path.read_text(encoding="utf-8")) if path.exists() else {})


def write(name: str, upgrades: list[str]) -> None:
    """Write one file; those that it builds on are written already."""
    bases: Blocks = {}
    for base in LAYERS[name]:
        bases |= whole(base)
    with tempfile.TemporaryDirectory() as folder:
        constraints, out = Path(folder) / "constraints.txt", Path(folder) / "out.txt"
        constraints.write_text("".join(bases.values()), encoding="utf-8")
        out.write_text("".join(whole(name).values()), encoding="utf-8")
        wanted = [f"--upgrade-package={each}" for each in upgrades]
        subprocess.run(
            ["pip-compile", *_FLAGS, *wanted, f"--constraint={constraints}",
             f"--output-file={out}", f"{name}.in"],
            cwd=ROOT, check=True,
        )  # fmt: skip
        found = blocks(out.read_text(encoding="utf-8"))
    lines = [f"-r {base}.txt\n" for base in LAYERS[name]]
    for package, text in found.items():
        if _pin(text) != _pin(bases.get(package, "")):
            lines.append(re.sub(r"    #\s+-c [^\n]*\n", "", text))
    (ROOT / f"{name}.txt").write_text("".join(lines), encoding="utf-8")


def _pin(text: str) -> str:
    return text.partition(" ")[0]


def main() -> int:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", metavar="NAME", action="append", default=[])
    upgrades = parser.parse_args().upgrade
    for name in LAYERS:
        write(name, upgrades)
    return 0


if __name__ == "__main__":
    sys.exit(main())
