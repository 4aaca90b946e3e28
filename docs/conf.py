"""The site of the documentation: `make docs` builds it into build/site.

Sphinx, because it fails on a broken link between pages (`-W`), has a search that needs no server,
and is maintained; MyST, so that the pages stay the Markdown that reads well without a site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from escrowmq.base.release import RELEASE  # noqa: E402

project = "EscrowMQ"
release = version = RELEASE
copyright = "The EscrowMQ authors, Apache-2.0"  # noqa: A001 - Sphinx's name

# The root of the project, because pages link to files beside and below docs.
root_doc = "docs/index"
include_patterns = [
    "docs/**.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md",
    "benchmarks/*.md", "examples/**.md",
]  # fmt: skip
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
html_theme = "furo"
html_title = f"EscrowMQ {RELEASE}"
html_show_sourcelink = False
html_copy_source = False
