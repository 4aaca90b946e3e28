"""Placeholder until the real one arrives."""

import argparse
from typing import Any


def add_parser(verbs: Any) -> None:  # noqa: ANN401
    """Nothing yet."""


def run(arguments: argparse.Namespace) -> int:
    """Nothing yet."""
    return 2
