"""Builds everything that a release consists of, in build/release: the sdist, the wheels for this
machine and for machines without a compiler, their licences and contents (SBOM), checksums, and the
release notes cut out of the changelog.

`make release` refuses what could not be released: uncommitted changes, a changelog without a
section for this release, a tag that names another commit. With `--draft` the section "Unreleased"
is taken, and none of that is checked.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
OUT: Final = ROOT / "build" / "release"
_UNRELEASED: Final = "Unreleased"


class NotReady(Exception):
    """Something must be done first; the text says what."""


def notes(changelog: str, version: str) -> str:
    """The section of one release. NotReady when there is none, or it is empty."""
    parts = re.split(r"^## (.+)$", changelog, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    for title, text in sections.items():
        if title.split()[0] == version:
            if not text.strip():
                raise NotReady(f"CHANGELOG.md: the section {title!r} is empty")
            return text.strip() + "\n"
    raise NotReady(
        f"CHANGELOG.md has no section {version!r}; it has {', '.join(map(repr, sections))}"
    )


def check(version: str, changelog: str) -> None:
    """Raise NotReady for what could not be released."""
    if _git("status", "--porcelain"):
        raise NotReady("there are uncommitted changes")
    notes(changelog, version)
    try:
        left = notes(changelog, _UNRELEASED)
    except NotReady:
        left = ""
    if left:
        raise NotReady(f"CHANGELOG.md: move the entries of {_UNRELEASED!r} to {version!r}")
    tagged = _git("tag", "--list", f"v{version}") and _git("rev-list", "-n1", f"v{version}")
    if tagged and tagged != _git("rev-parse", "HEAD"):
        raise NotReady(f"v{version} is tagged at {tagged[:12]}: raise RELEASE in base/release.py")


def build() -> None:
    """The sdist and the wheels."""
    python = (sys.executable, "-c")
    sdist = f"from setuptools.build_meta import build_sdist; build_sdist({str(OUT)!r})"
    subprocess.run([*python, sdist], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--no-build-isolation", f"--wheel-dir={OUT}", str(ROOT)]  # fmt: skip
    for pure in ("0", "1"):
        subprocess.run(wheel, check=True, env={**os.environ, "ESCROWMQ_PURE": pure})


def repair(folder: Path, tools: Path) -> Path | None:
    """Give the wheel with the accelerator the tag of the oldest Linux that it runs on
    (manylinux_2_17, as `auditwheel` finds from the symbols that it uses), so that an index takes
    it. None on other systems, whose wheels have their tag already."""
    if not sys.platform.startswith("linux"):
        return None
    (wheel,) = folder.glob("*-linux_*.whl")
    command = [str(tools / "auditwheel"), "repair", f"--wheel-dir={folder}", str(wheel)]
    where = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(command, env=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReady(f"{wheel.name} runs on no manylinux: {done.stderr.strip()}")
    wheel.unlink()
    (repaired,) = folder.glob("*manylinux*.whl")
    return repaired


def sums() -> str:
    """The checksums of all files, as `sha256sum --check` reads them."""
    files = sorted(path for path in OUT.iterdir() if path.name != "SHA256SUMS")
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files
    )


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main(version: str, *, is_draft: bool) -> int:
    """Build it; the exit code."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    try:
        if not is_draft:
            check(version, changelog)
        text = notes(changelog, _UNRELEASED if is_draft else version)
    except NotReady as error:
        print(f"not ready: {error}")
        return 1
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    build()
    try:
        repair(OUT, ROOT / "build" / "audit" / "bin")
    except NotReady as error:
        print(f"not ready: {error}")
        return 1
    (OUT / "NOTES.md").write_text(f"# EscrowMQ {version}\n\n{text}", encoding="utf-8")
    bom = ROOT / "build" / "escrowmq.cdx.json"
    if bom.exists():
        shutil.copy(bom, OUT)
    (OUT / "SHA256SUMS").write_text(sums(), encoding="utf-8")
    print(sums(), end="")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draft", action="store_true")
    sys.path.insert(0, str(ROOT / "src"))
    from escrowmq.base.release import RELEASE

    sys.exit(main(RELEASE, is_draft=parser.parse_args().draft))
