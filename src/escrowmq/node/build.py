"""The build of EscrowMQ: the release and its commit, as a local version (`0.1.0+g1a2b3c4d`, PEP
440), with `.dirty` if files of the commit were changed.

A wheel and an sdist contain the commit in a file that setup.py writes, so an installation reads one
short file. A checkout, including an editable install, asks git each time, which takes some
milliseconds: a stored commit would be wrong after the next one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from escrowmq.base.release import RELEASE

COMMIT_FILE: Final = "commit.txt"
"""The name of the file in a built package that has the commit, in the form of `commit_label`."""

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_SOURCES: Final = ("src", "setup.py", "pyproject.toml")
_SHOWN: Final = 8
_PATIENCE_S: Final = 5


def release_with_commit(package: Path = _PACKAGE) -> str:
    """Return the release with the commit, or alone if the commit is unknown."""
    try:
        commit = (package / COMMIT_FILE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        commit = commit_label(package.parent.parent) if package.parent.name == "src" else ""
    return f"{RELEASE}+{commit}" if commit else RELEASE


def commit_label(root: Path) -> str:
    """Return `g` and eight digits of a checkout's commit, followed by `.dirty` if any installed
    file differs from it; empty if there is no checkout."""
    if not (root / ".git").exists():  # git would find one further up, which is another project's
        return ""
    try:
        found = _run_git(root, "rev-parse", "HEAD").strip()
        changes = _run_git(root, "status", "--porcelain", "--", *_SOURCES)
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"g{found[:_SHOWN]}{'.dirty' if changes else ''}"


def _run_git(root: Path, *words: str) -> str:
    return subprocess.run(  # noqa: S603 - words of our own
        ["git", "--no-optional-locks", *words],  # noqa: S607 - the one that its owner uses
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=_PATIENCE_S,
    ).stdout
