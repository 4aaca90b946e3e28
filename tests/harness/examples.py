"""Where the examples of Hypothesis come from: by chance for people, always the same ones in CI."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

CI = "ci"
"""The profile for CI: `--hypothesis-profile=ci`."""


QUICK_COUNT: Final = 10
"""Of the seeds of a test, those that `make unit` takes: the first ten find what is broken now, the
others what is seldom."""


def seeds(count: int) -> list[Any]:
    """The first so many, as parameters; `make unit` takes some of them, all else every one."""
    return [
        pytest.param(seed, marks=[pytest.mark.thorough] if seed >= QUICK_COUNT else [])
        for seed in range(count)
    ]


def register_profiles() -> None:
    """Name the profiles, and take the one that searches by chance."""
    # How long an example takes by the clock on the wall says how busy the machine is, not what is
    # tested: a few tests went over 200 ms now and then, where other suites ran beside them.
    # Hypothesis takes other defaults where a variable of the environment says CI: `derandomize`
    # is said here, so that nothing but the profile decides.
    chance = settings(
        deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False
    )
    settings.register_profile("escrowmq", chance)
    settings.register_profile("quick", chance, max_examples=15)  # make unit: for while you work
    settings.register_profile("search", chance, max_examples=1_000)  # make fuzz
    settings.register_profile(CI, chance, derandomize=True, database=None, print_blob=True)
    settings.load_profile("escrowmq")


def forget_constants() -> None:
    """Draw no numbers and texts from the code that happens to be loaded.

    With `derandomize` the seed of a test is fixed; but one value in twenty is taken from the
    constants of all local modules imported so far, so that what another test of the same worker
    imported, or a constant in a file that has nothing to do with it, gives other examples.
    Hypothesis has no setting for it.
    """
    none = Constants()
    providers._get_local_constants = lambda: none
