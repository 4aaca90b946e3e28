"""The reference pages are what the docstrings say."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "reference.py"


def test_the_pages_are_those_that_the_docstrings_make() -> None:
    spec = importlib.util.spec_from_file_location("reference", TOOL)
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    made = dict(reference.pages())
    written = {path.name: path.read_text() for path in reference.FOLDER.glob("*.md")}
    assert made.keys() == written.keys(), "run `make docs`"
    for name, text in made.items():
        assert written[name] == text, f"{name} is not what the docstrings say; run `make docs`"
