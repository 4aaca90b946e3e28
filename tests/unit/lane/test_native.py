"""Whether there is a native lane is found out once, and can be forbidden."""

import os
import shutil
import subprocess
import sys

import pytest

from escrowmq.lane import native

TELL = "from escrowmq.lane import native; print(native.requests_lane is None, native.why_plain)"


def told(program: str, **environment: str) -> str:
    """In a process of its own: what is loaded is loaded once."""
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_lane_is_left_aside_when_somebody_says_so() -> None:
    assert told(TELL, ESCROWMQ_PURE="1") == "True ESCROWMQ_PURE is set"


def test_lane_that_was_not_built_is_missed_and_the_reason_said() -> None:
    absent = f"sys.modules['escrowmq.lane._compiled'] = None; {TELL}"
    reason = told(absent, ESCROWMQ_PURE="0")
    assert reason.startswith("True import of escrowmq.lane._compiled halted")


def test_lane_that_was_built_from_other_sources_is_left_aside() -> None:
    other = "import types; sys.modules['escrowmq.lane._compiled'] = types.ModuleType('other')"
    assert told(f"{other}; {TELL}", ESCROWMQ_PURE="0") == "True it was built from other sources"


def test_lane_under_test_is_the_one_that_was_asked_for() -> None:
    """By `make sanitized`, which would otherwise say nothing when another one was loaded."""
    wanted = os.environ.get("ESCROWMQ_LANE_MUST_BE")
    if wanted:
        assert wanted in str(sys.modules["escrowmq.lane._compiled"].__file__)


@pytest.mark.skipif(bool(os.environ.get("ESCROWMQ_PURE")), reason="it is left aside")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
def test_lane_is_there_where_a_compiler_is() -> None:
    """A build that fails leaves it out, and says nothing: all tests would pass on plain Python."""
    assert not native.why_plain


def test_either_there_is_a_lane_or_a_reason_why_not() -> None:
    assert (native.requests_lane is None) == bool(native.why_plain)
