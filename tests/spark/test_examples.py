"""The examples of docs/spark.md run as they stand, one after the other."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import escrowmq
from tests.interop import servers
from tests.interop.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.long
def test_the_page_runs(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    for topic in ("orders", "parcels", "orders-copy", "report"):
        servers.new_topic(server, topic)
    with escrowmq.Producer(server.nameserver, group="g") as producer:
        for number, tag, colour in ((1, "card", "red"), (2, "card", "blue"), (3, "cash", "")):
            own = {"colour": colour} if colour else {}
            body = str(number * 10).encode()
            producer.send("orders", body, tag=tag, keys=[f"o-{number}"], properties=own)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    text = "\n".join(blocks).replace("127.0.0.1:9876", server.nameserver)
    text = text.replace("/data/", f"{tmp_path}/").replace('"/store"', repr(str(server.store)))
    page = doctest.DocTestParser().get_doctest(text, {"spark": spark}, PAGE.name, str(PAGE), 0)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
    outcome = runner.run(page, out=told.append)
    spark.catalog.dropTempView("orders")
    assert outcome.attempted > 15
    assert outcome.failed == 0, "".join(told)
