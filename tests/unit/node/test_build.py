from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from escrowmq.base.release import RELEASE
from escrowmq.node.build import COMMIT_FILE, commit_label, release_with_commit

ROOT = Path(__file__).resolve().parents[3]


def git(root: Path, *words: str) -> str:
    name = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    return subprocess.run(
        ["git", *name, *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "src" / "escrowmq").mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "src/escrowmq/one.py", "README.md"):
        (root / name).write_text("one\n")
    git(root.parent, "init", "-q", str(root))
    git(root, "add", ".")
    git(root, "commit", "-qm", "One")
    return root


def test_checkout_is_at_its_commit(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")[:8]
    assert release_with_commit(checkout / "src" / "escrowmq") == f"{RELEASE}+g{head}"


def test_next_commit_is_another_build(checkout: Path) -> None:
    before = release_with_commit(checkout / "src" / "escrowmq")
    git(checkout, "commit", "-qm", "Two", "--allow-empty")
    assert release_with_commit(checkout / "src" / "escrowmq") != before


@pytest.mark.parametrize("name", ["src/escrowmq/one.py", "src/escrowmq/new.py", "setup.py"])
def test_what_differs_from_the_commit_is_marked(checkout: Path, name: str) -> None:
    clean = commit_label(checkout)
    (checkout / name).write_text("two\n")
    assert commit_label(checkout) == f"{clean}.dirty"


def test_what_is_not_installed_counts_for_nothing(checkout: Path) -> None:
    clean = commit_label(checkout)
    (checkout / "README.md").write_text("two\n")
    (checkout / "src" / "escrowmq" / "one.py").touch()
    assert commit_label(checkout) == clean


def test_worktree_is_at_its_own_commit(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    git(tmp_path / "other", "commit", "-qm", "Two", "--allow-empty")
    head = git(tmp_path / "other", "rev-parse", "HEAD")[:8]
    assert commit_label(tmp_path / "other") == f"g{head}"
    assert commit_label(checkout) != f"g{head}"


def test_checkout_of_another_project_further_up_is_not_asked(checkout: Path) -> None:
    inner = checkout / "vendor" / "src" / "escrowmq"
    inner.mkdir(parents=True)
    assert release_with_commit(inner) == RELEASE


def test_without_git_the_release_is_all(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert release_with_commit(checkout / "src" / "escrowmq") == RELEASE


def test_what_was_baked_in_needs_no_git(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = checkout / "src" / "escrowmq"
    (package / COMMIT_FILE).write_text("g12345678\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert release_with_commit(package) == f"{RELEASE}+g12345678"


def build(source: Path, *words: str) -> None:
    """What pip and others ask of a build backend, in a process of its own."""
    subprocess.run(
        [sys.executable, "setup.py", "-q", *words],
        cwd=source,
        check=True,
        capture_output=True,
        env={"ESCROWMQ_PURE": "1", "PATH": "/usr/bin:/bin"},
    )


def test_sdist_and_the_wheel_built_from_it_carry_the_commit(tmp_path: Path) -> None:
    git(
        ROOT,
        "clone",
        "-q",
        "--no-hardlinks",
        "--depth",
        "1",
        f"file://{ROOT}",
        str(tmp_path / "clone"),
    )
    clone = tmp_path / "clone"
    for name in ("setup.py", "pyproject.toml", "src/escrowmq/node/build.py"):
        (clone / name).write_bytes((ROOT / name).read_bytes())
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "Build", "--allow-empty")
    commit = commit_label(clone)
    build(clone, "sdist", "--dist-dir", str(tmp_path / "out"))
    [packed] = (tmp_path / "out").glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    [source] = (tmp_path / "unpacked").iterdir()
    assert release_with_commit(source / "src" / "escrowmq") == f"{RELEASE}+{commit}"
    build(source, "bdist_wheel", "--dist-dir", str(tmp_path / "out"))
    [wheel] = (tmp_path / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(f"escrowmq/{COMMIT_FILE}").decode().strip() == commit
