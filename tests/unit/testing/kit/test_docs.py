"""The examples of docs/testing.md run as they stand."""

import re
import sys
from pathlib import Path

import pytest

import escrowmq
from escrowmq.testing import Broker

PAGE = Path(__file__).resolve().parents[4] / "docs" / "testing.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

IMPORTS = """
from datetime import timedelta
import pytest
import escrowmq
import escrowmq.aio
from escrowmq.errors import OutcomeUnknown, PermissionDenied
import escrowmq.testing
from escrowmq.testing import Account
from escrowmq.integrations.sqlalchemy import add_tables, consume_once
from sqlalchemy import MetaData, create_engine
from sqlalchemy.orm import sessionmaker

committed = set()

def was_it_committed(message):
    known = message.keys[0] in committed
    return escrowmq.Outcome.COMMIT if known else escrowmq.Outcome.ROLLBACK

"""

RUNS_COROUTINES = """
import asyncio, inspect

def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj(escrowmq_broker=pyfuncitem.funcargs["escrowmq_broker"]))
        return True
"""


def test_what_runs_inside_this_process_finds_all_of_escrowmq_imported() -> None:
    """What it imported itself would be forgotten behind it, uvloop's inside too."""
    for each in (Broker, escrowmq.Producer, escrowmq.Consumer):
        assert getattr(sys.modules[each.__module__], each.__name__) is each


def test_the_page_has_an_example_of_each_kind() -> None:
    assert len(BLOCKS) == 8


@pytest.mark.parametrize("nth", range(len(BLOCKS)))
def test_an_example_runs(pytester: pytest.Pytester, nth: int) -> None:
    pytester.makeconftest(RUNS_COROUTINES)
    pytester.makepyfile(IMPORTS + BLOCKS[nth])
    pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=1)
