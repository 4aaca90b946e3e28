"""What `make release` cuts out of the changelog, and what it refuses."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = """# Changelog

Words before.

## Unreleased

### Added

- a thing

## 0.2.0 (2026-12-01)

### Fixed

- another

## 0.1.0
"""


@pytest.fixture(name="release", scope="module")
def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notes_are_the_section_of_a_release(release: ModuleType) -> None:
    assert release.notes(CHANGELOG, "0.2.0") == "### Fixed\n\n- another\n"
    assert release.notes(CHANGELOG, "Unreleased") == "### Added\n\n- a thing\n"
    with pytest.raises(release.NotReady, match=r"'0\.1\.0' is empty"):
        release.notes(CHANGELOG, "0.1.0")
    with pytest.raises(release.NotReady, match=r"no section '0\.3\.0'"):
        release.notes(CHANGELOG, "0.3.0")


def test_what_could_not_be_released_is_refused(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"status": "", "tag": "", "rev-list": "f" * 40, "rev-parse": "a" * 40}
    monkeypatch.setattr(release, "_git", lambda *words: said[words[0]])
    with pytest.raises(release.NotReady, match="move the entries of 'Unreleased'"):
        release.check("0.2.0", CHANGELOG)
    ready = CHANGELOG.replace("### Added\n\n- a thing\n", "")
    release.check("0.2.0", ready)
    said["tag"] = "v0.2.0"
    with pytest.raises(release.NotReady, match="raise RELEASE"):
        release.check("0.2.0", ready)
    said["status"] = " M src/x.py"
    with pytest.raises(release.NotReady, match="uncommitted"):
        release.check("0.2.0", ready)


def test_the_changelog_of_the_project_has_notes(release: ModuleType) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "### " in release.notes(changelog, "Unreleased")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_the_accelerator_asks_for_no_newer_glibc_than_manylinux_2_17_has() -> None:
    compiled = pytest.importorskip("escrowmq.lane._compiled")
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", Path(compiled.__file__).read_bytes())
    assert found
    assert max((int(major), int(minor)) for major, minor in found) <= (2, 17)


def test_a_wheel_that_cannot_be_repaired_is_named(release: ModuleType, tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        assert release.repair(tmp_path, tmp_path) is None
        return
    (tmp_path / "escrowmq-1-cp311-abi3-linux_x86_64.whl").write_bytes(b"")
    tool = tmp_path / "auditwheel"
    tool.write_text("#!/bin/sh\necho 'too new a glibc' >&2\nexit 1\n")
    tool.chmod(0o755)
    with pytest.raises(release.NotReady, match="runs on no manylinux: too new a glibc"):
        release.repair(tmp_path, tmp_path)
