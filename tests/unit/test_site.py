"""The site has every page, and no two ways to build it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INDEX = (ROOT / "docs" / "index.md").read_text()


def listed() -> list[str]:
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", INDEX, re.DOTALL)
    return [
        line for block in blocks for line in block.splitlines() if line and not line.startswith(":")
    ]


def test_every_page_of_docs_is_in_the_index_once() -> None:
    names = listed()
    assert len(names) == len(set(names))
    pages = {
        str(path.relative_to(ROOT / "docs").with_suffix(""))
        for path in (ROOT / "docs").rglob("*.md")
    } - {"index"}
    assert pages == {name for name in names if not name.startswith("../")}
    for name in names:
        assert (ROOT / "docs" / f"{name}.md").resolve().is_file(), name


def test_a_broken_link_ends_the_build() -> None:
    (line,) = [one for one in (ROOT / "Makefile").read_text().splitlines() if "sphinx-build" in one]
    assert " -W " in line


def test_the_tools_of_the_site_are_pinned_with_hashes() -> None:
    pins = (ROOT / "requirements-docs.txt").read_text()
    for wanted in (ROOT / "requirements-docs.in").read_text().split():
        assert f"{wanted} \\\n    --hash=sha256:" in pins
