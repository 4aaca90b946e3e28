"""The example of docs/grpc.md runs as it stands, with RocketMQ's own client for Python."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import escrowmq
from tests.interop.process import until
from tests.interop.servers import EscrowServer

from .places import topic

PAGE = Path(__file__).resolve().parents[2] / "docs" / "grpc.md"
CHECKER = """
from rocketmq import TransactionChecker, TransactionResolution

class Checker(TransactionChecker):
    def check(self, message):
        return TransactionResolution.COMMIT

checker = Checker()
"""


def test_the_example_runs(server: EscrowServer) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    name = topic(server, "paid", "TRANSACTION")
    assert name in example
    text = CHECKER + example.replace("127.0.0.1:8081", server.grpc) + "producer.shutdown()\n"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    with escrowmq.Admin(server.nameserver) as admin:
        until("it is committed", lambda: admin.topics.describe(name).count == 1)
