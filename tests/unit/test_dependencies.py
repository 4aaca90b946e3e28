"""A plain installation runs what it says, and what needs more says the name of the extra."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "escrowmq"
MODULES = {"pyyaml": "yaml", "prometheus-client": "prometheus_client", "opentelemetry-api":
           "opentelemetry", "protobuf": "google", "fast-depends": "fast_depends",
           "opentelemetry-sdk": "opentelemetry",
           "opentelemetry-exporter-otlp-proto-http": "opentelemetry"}  # fmt: skip
LOCKS = ("requirements.txt", "requirements-audit.txt", "requirements-check.txt",
         "requirements-console.txt", "requirements-deploy.txt", "requirements-dev.txt",
         "requirements-docs.txt",
         "requirements-spark-base.txt", "requirements-spark.txt",
         "requirements-spark-4.1.txt", "requirements-spark-4.3.txt")  # fmt: skip
EXTRAS = {
    "authority": ["s3"],
    "compensation": ["compensation"],
    "console": ["console", "mcp"],
    "pipeline": ["spark"],
    "node": ["otlp"],
    "integrations": ["otel", "sqlalchemy", "django", "faststream", "celery"],
}
"""Rooms that need extras."""

ASKED_FOR = {"psycopg", "pymysql", "tqdm", "py4j"}
"""Imported inside a function by who is told when it is missing, or part of another package."""


def provided(extra: str = "") -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"][extra] if extra else project["dependencies"]
    names = [re.split(r"[<>=\[;]", text)[0].strip() for text in wanted]
    return {MODULES.get(name, name) for name in names}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def needs(room: str, found: set[str]) -> set[str]:
    """What modules of a room import that neither Python nor the installation provides."""
    theirs = found - sys.stdlib_module_names - {"escrowmq"} - provided() - ASKED_FOR
    return theirs.difference(*(provided(extra) for extra in EXTRAS.get(room, ())))


def test_each_dependency_is_listed_with_its_licence() -> None:
    """As the packages that are installed have it themselves."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    section = text.partition("## What is installed with it")[2].partition("\n## ")[0]
    rows = re.findall(
        r"^\| ([a-z0-9, -]+) \| ([\w.-]+(?: (?:OR|AND) [\w.-]+)*) \|", section, re.MULTILINE
    )
    listed = {name: licence for names, licence in rows for name in names.split(", ")}
    listed.pop("package")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(listed) == {re.split(r"[<>=]", each)[0] for each in project["dependencies"]}
    for name, licence in listed.items():
        said = importlib.metadata.metadata(name)
        theirs = " ".join(
            [*said.get_all("License-Expression", []), *said.get_all("License", []),
             *(each for each in said.get_all("Classifier", []) if each.startswith("License"))]
        )  # fmt: skip
        families = {each.partition("-")[0] for each in re.split(" OR | AND ", licence)}
        assert families == {each for each in ("MIT", "BSD", "Apache") if each in theirs}, name


def test_an_audit_that_was_told_nothing_is_no_good_news() -> None:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    audit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(audit)
    fine = {"name": "a", "version": "1", "vulns": []}
    weak = {"id": "PYSEC-2026-1", "fix_versions": ["2.1"]}
    bad = {"name": "b", "version": "2", "vulns": [weak]}
    unasked = {"name": "c", "skip_reason": "Dependency not found on PyPI"}

    def code(*packages: object) -> int:
        found: int = audit.verdict({"dependencies": list(packages)})[0]
        return found

    assert [code(fine), code(bad), code(unasked), code()] == [0, 1, 2, 2]
    assert [code(fine, unasked), code(bad, unasked)] == [2, 1]
    assert audit.verdict({"dependencies": [bad]})[1] == ["b 2: PYSEC-2026-1, mended in 2.1"]


def test_every_import_is_declared() -> None:
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        found.setdefault(room, set()).update(imported(path))
    # The commands find out by importing.
    found["cli"] -= {"pyspark", "redis"}
    found["testing"] -= {"pytest"}  # whose plug-in it is
    missing = {room: more for room, names in found.items() if (more := needs(room, names))}
    assert missing == {}


WITHOUT = """
import sys
for name in {names!r}:
    sys.modules[name] = None
{rest}
"""


def run(names: list[str], rest: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(names=names, rest=rest)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [
        ("pyspark", ["pipeline", "funnel", "--out", "x"], "escrowmq[spark]"),
        ("pyspark", ["pipeline", "export", "--out", "x", "t"], "escrowmq[spark]"),
    ],
)
def test_a_command_that_needs_more_names_the_extra_in_one_line(
    missing: str, words: list[str], extra: str
) -> None:
    done = run([missing], f"from escrowmq.cli.main import main; sys.exit(main({words!r}))")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert extra in done.stderr


@pytest.mark.parametrize(
    ("missing", "module", "extra"),
    [
        ("redis", "escrowmq.compensation", "escrowmq[compensation]"),
        ("opentelemetry", "escrowmq.integrations.otel", "escrowmq[otel]"),
        ("sqlalchemy", "escrowmq.integrations.sqlalchemy", "escrowmq[sqlalchemy]"),
        ("django", "escrowmq.integrations.django", "escrowmq[django]"),
        (
            "django_tasks",
            "escrowmq.integrations.django.tasks.framework",
            "escrowmq[django-tasks]",
        ),
        ("faststream", "escrowmq.integrations.faststream", "escrowmq[faststream]"),
        ("celery", "escrowmq.integrations.kombu", "escrowmq[celery]"),
        ("pyspark", "escrowmq.pipeline.datasource", "escrowmq[spark]"),
        ("pyarrow", "escrowmq.pipeline.datasource", "escrowmq[spark]"),
    ],
)
def test_a_module_that_needs_more_names_the_extra_in_its_error(
    missing: str, module: str, extra: str
) -> None:
    done = run([missing], f"import {module}")
    assert done.returncode == 1
    assert f"pip install '{extra}'" in done.stderr.splitlines()[-1]


def test_the_servers_and_the_sdk_need_no_extra() -> None:
    names = ["redis", "opentelemetry", "pyspark", "pyarrow", "numpy", "pandas", "matplotlib",
             "google"]  # fmt: skip
    done = run(
        names,
        "import escrowmq, escrowmq.aio, escrowmq.node.serve, escrowmq.node.metrics_port\n"
        "from escrowmq.cli.main import build_parser; build_parser()",
    )
    assert done.returncode == 0, done.stderr


def extras_of(text: str) -> dict[str, set[str]]:
    """Extras of each package that is required by some lines."""
    found: dict[str, set[str]] = {}
    for name, extras in re.findall(r"^([\w.-]+)(?:\[([\w.,-]+)\])?", text, re.MULTILINE):
        found.setdefault(name.lower().replace("_", "-"), set()).update(
            extras.split(",") if extras else ()
        )
    return found


def whole(lock: str) -> str:
    """A file of pins with those that it builds on."""
    text = (ROOT / lock).read_text()
    bases = re.findall(r"^-r (\S+)$", text, re.MULTILINE)
    return "".join(map(whole, bases)) + text


def test_a_file_of_pins_repeats_none_of_those_that_it_builds_on() -> None:
    for lock in LOCKS:
        text = (ROOT / lock).read_text()
        bases = "".join(map(whole, re.findall(r"^-r (\S+)$", text, re.MULTILINE)))
        names = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)", re.MULTILINE)
        below = dict(names.findall(bases))
        for name, version in names.findall(text):
            assert below.get(name, version) == version, (lock, name)
            assert f"\n{name}=={version} " not in f"\n{bases}", (lock, name)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_pin_names_the_extras_that_others_want_of_its_package(lock: str) -> None:
    """A pin without them is for what pip takes for another package: that one's newest release has
    no hash here."""
    pinned = extras_of(whole(lock))
    for name in pinned:
        try:
            wanted = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another release of PySpark
        for needed, extras in extras_of("\n".join(wanted_always(wanted))).items():
            assert extras <= pinned.get(needed, extras), (name, needed, extras)


def wanted_always(lines: list[str]) -> list[str]:
    return [line for line in lines if "extra ==" not in line]


def test_a_check_runs_the_versions_that_the_tests_have() -> None:
    def pinned(name: str) -> set[str]:
        return set(re.findall(r"^(\S+==\S+)", whole(name), re.MULTILINE))

    few, all_of_them = pinned("requirements-check.txt"), pinned("requirements-dev.txt")
    assert few <= all_of_them
    assert not [each for each in few if each.lower().startswith(("celery", "django", "pyspark"))]
