"""Tells at the end how much was tried, for SECURITY.md."""

import pytest

from .frames import SEED, TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line: inputs in all, and by what they were for."""
    if TALLY:
        parts = ", ".join(f"{name} {count}" for name, count in sorted(TALLY.items()))
        terminalreporter.write_line(f"odd inputs of seed {SEED}: {TALLY.total()} ({parts})")
