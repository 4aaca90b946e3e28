"""What Spark's processes load that plan a read, without a clock: each read starts two of them."""

from __future__ import annotations

import pytest

from tests.harness.imports import loaded

pytest.importorskip("pyspark")

UNWANTED = ("escrowmq.pipeline.sink", "escrowmq.broker", "escrowmq.store")


@pytest.mark.parametrize(
    "module", ["escrowmq.pipeline.datasource", "escrowmq.pipeline.source.batch"]
)
def test_who_reads_loads_neither_what_writes_nor_a_client_with_its_loop(module: str) -> None:
    found = loaded(f"import {module}")
    assert "asyncio" not in found
    assert [name for name in found if name.startswith(UNWANTED)] == []
    of_clients = {name for name in found if name.startswith("escrowmq.client.")}
    outside = {name for name in of_clients if not name.startswith("escrowmq.client.core")}
    assert outside <= {"escrowmq.client.client_settings", "escrowmq.client.tls"}


def test_the_schema_is_told_without_what_reads() -> None:
    found = loaded("import escrowmq.pipeline.datasource")
    assert "escrowmq.pipeline.source.batch" not in found
    assert "pyarrow.compute" not in found
