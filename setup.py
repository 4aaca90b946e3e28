"""What pyproject.toml cannot say: the compiled lane, and which commit is built. A machine without a
compiler leaves the lane out, and so does ESCROWMQ_PURE=1, which makes a wheel for all machines:
plain Python does the same."""

import os
import sys
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "src"))

from escrowmq.node.build import COMMIT_FILE, commit_label  # noqa: E402 - it needs nothing that is installed


def bake(package: Path) -> None:
    """Note the commit in the package that is built. An sdist has none, and brings the note."""
    if commit := commit_label(ROOT):
        (package / COMMIT_FILE).write_text(f"{commit}\n", encoding="ascii")


class BuildPackage(build_py):
    """With the commit; what is installed as editable asks its checkout each time."""

    def run(self) -> None:
        """As ever, then the note."""
        super().run()
        if not self.editable_mode:
            bake(Path(self.build_lib) / "escrowmq")


class SourceDistribution(sdist):
    """With the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """As ever, then the note."""
        super().make_release_tree(base_dir, files)
        bake(Path(base_dir) / "src" / "escrowmq")


commands = {"build_py": BuildPackage, "sdist": SourceDistribution}

if os.environ.get("ESCROWMQ_PURE", "") in ("", "0"):
    setup(
        cmdclass=commands,
        ext_modules=[
            Extension(
                "escrowmq.lane._compiled",
                sources=sorted(glob("src/escrowmq/lane/*.c")),
                depends=sorted(glob("src/escrowmq/lane/*.h")),
                py_limited_api=True,
                optional=True,
            )
        ],
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
else:
    setup(cmdclass=commands)
