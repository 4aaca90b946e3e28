"""Which build of EscrowMQ this is: the release and the commit that it was made from, as a local
version (`0.1.0+g1a2b3c4d`, PEP 440), with `.dirty` where files of the commit were changed.

A wheel and an sdist carry the commit in a file that setup.py writes, so that an installation reads
one short file. A checkout, and what is installed from one as editable, is asked each time: what was
baked in there would be wrong after the next commit. That takes git, for some milliseconds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from escrowmq.base.release import RELEASE

BAKED: Final = "commit.txt"
"""In the package's folder, of what was built: a commit as `commit_of` gives it."""

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_SOURCES: Final = ("src", "setup.py", "pyproject.toml")
_SHOWN: Final = 8
_PATIENCE_S: Final = 5


def build_name(package: Path = _PACKAGE) -> str:
    """The release with the commit, or alone where nothing tells of a commit."""
    try:
        commit = (package / BAKED).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        commit = commit_of(package.parent.parent) if package.parent.name == "src" else ""
    return f"{RELEASE}+{commit}" if commit else RELEASE


def commit_of(root: Path) -> str:
    """`g` and eight digits of the commit that a checkout is at, `.dirty` behind it if anything that
    is installed differs from it; empty where there is no checkout."""
    if not (root / ".git").exists():  # git would find one further up, which is another project's
        return ""
    try:
        found = _git(root, "rev-parse", "HEAD").strip()
        changes = _git(root, "status", "--porcelain", "--", *_SOURCES)
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"g{found[:_SHOWN]}{'.dirty' if changes else ''}"


def _git(root: Path, *words: str) -> str:
    return subprocess.run(  # noqa: S603 - words of our own
        ["git", "--no-optional-locks", *words],  # noqa: S607 - the one that its owner uses
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=_PATIENCE_S,
    ).stdout
