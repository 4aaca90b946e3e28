"""Asks PyPI for known weaknesses of what requirement files pin, by pip-audit.

Exit code: 0 nothing is known against any of it, 1 something is, 2 nobody could be asked about some.
pip-audit itself says "No known vulnerabilities found", and ends with 0, when it was told nothing
about a single package: a mirror that has nothing but packages knows of no weaknesses.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

NOTHING, KNOWN, UNASKED = 0, 1, 2
_TIMEOUT_S = 15


def verdict(report: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit code, and what is to be said, of pip-audit's report in JSON."""
    packages = list({each["name"]: each for each in report["dependencies"]}.values())
    known = [
        f"{each['name']} {each['version']}: {found['id']}, mended in "
        f"{', '.join(found['fix_versions']) or 'no release yet'}"
        for each in packages
        for found in each.get("vulns", ())
    ]
    unasked = [each["name"] for each in packages if "skip_reason" in each]
    lines = sorted(known)
    if unasked:
        lines.append(
            f"nothing is known about {len(unasked)} of {len(packages)} packages: the service did "
            f"not answer for {', '.join(sorted(unasked)[:5])}...; run it where PyPI itself can be "
            "reached (a mirror of packages is not enough)"
        )
    if known:
        return KNOWN, lines
    if unasked or not packages:
        return UNASKED, lines or ["no package was looked at; name files of requirements"]
    return NOTHING, [f"nothing is known against any of {len(packages)} packages"]


def main(files: list[str]) -> int:
    """Ask about all of some files."""
    packages: list[dict[str, Any]] = []
    for file in files:
        command = [
            str(Path(sys.executable).with_name("pip-audit")), "--requirement", file,
            "--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json",
            "--timeout", str(_TIMEOUT_S),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            packages += json.loads(done.stdout)["dependencies"]
        except ValueError:
            last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
            print(f"{file}: nobody could be asked: {last}")
            return UNASKED
    code, lines = verdict({"dependencies": packages})
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
