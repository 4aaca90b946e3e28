"""Ten messages, each in a transaction: committed, rolled back, or left open and asked about.

    make demo
    python examples/ten_transactions.py [HOST:PORT of a name server]

Without an address it starts a server of its own in a temporary folder.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

import escrowmq
from escrowmq import Message, Outcome

TOPIC = "Demo"
STATES = (Outcome.UNKNOWN, Outcome.COMMIT, Outcome.ROLLBACK)
"""In turn: of ten messages four are left open, three committed, three rolled back."""

DELIVERED_COUNT = 7
ASKED_WITHIN_S = 30.0
IN_TIME_S = 30.0


class Orders:
    """The local transactions: here they are only made up, in life they change a database."""

    def __init__(self) -> None:
        self.said: dict[str, Outcome] = {}
        self.checks: dict[str, int] = {}
        self.all_asked = threading.Event()

    def execute(self, message: Message, number: int) -> Outcome:
        """What the producer does between half and end."""
        return self.said.setdefault(message.keys[0], STATES[number % len(STATES)])

    def check(self, message: Message) -> Outcome:
        """The broker asks what became of a message that nobody settled."""
        key = message.keys[0]
        self.checks[key] = self.checks.get(key, 0) + 1
        open_ones = [one for one, outcome in self.said.items() if outcome is Outcome.UNKNOWN]
        if len(self.said) == 10 and set(self.checks) >= set(open_ones):
            self.all_asked.set()
        return Outcome.COMMIT


@contextlib.contextmanager
def server() -> Iterator[str]:
    """An embedded server that asks soon."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "escrowmq", "serve", "--data", folder, "--nameserver-port", "0",
            "--broker-port", "0", "--set", "transactionTimeOut=1000",
            "--set", "transactionCheckInterval=1000",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                ready = child.stdout.readline()
                if not ready:
                    raise SystemExit("the server did not start; what it said stands above")
                doors = dict(pair.split("=") for pair in ready.split()[2:])
                yield doors["nameserver"]
            finally:
                child.terminate()


def run(nameserver: str) -> None:
    """Send, settle, be asked, receive; then show what became of each."""
    orders = Orders()
    arrived: dict[str, str] = {}
    all_arrived = threading.Event()

    def take(message: Message) -> None:
        arrived[message.keys[0]] = message.body.decode()
        if len(arrived) == DELIVERED_COUNT:
            all_arrived.set()

    with escrowmq.Admin(nameserver) as admin:
        admin.topics.create(TOPIC)
    with (
        escrowmq.Consumer(nameserver, group="demo-readers", topic=TOPIC, handler=take),
        escrowmq.Producer(nameserver, group="demo-orders", listener=orders) as producer,
    ):
        for number in range(10):
            message = Message(TOPIC, f"order {number}".encode(), keys=[f"o-{number}"])
            producer.send_in_transaction(message, number)
        if not orders.all_asked.wait(ASKED_WITHIN_S):
            raise SystemExit(f"asked about {sorted(orders.checks)} only")
        all_arrived.wait(IN_TIME_S)
    show(orders, arrived)


def show(orders: Orders, arrived: dict[str, str]) -> None:
    """A table, a line a message; an exit code that says whether it is as it should be."""
    print(f"{'message':<10}{'local transaction':<20}{'asked':<8}{'delivered'}")
    for key, outcome in orders.said.items():
        asked = orders.checks.get(key, 0)
        print(f"{key:<10}{outcome.name.lower():<20}{asked or '-':<8}{arrived.get(key, '-')}")
    wanted = {key for key, outcome in orders.said.items() if outcome is not Outcome.ROLLBACK}
    if set(arrived) != wanted:
        raise SystemExit(f"delivered: {sorted(arrived)}; expected: {sorted(wanted)}")
    print("three committed and three rolled back at once, four asked about and then committed")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1])
    else:
        with server() as address:
            run(address)
