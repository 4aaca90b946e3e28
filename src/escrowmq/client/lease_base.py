"""One of many does it: what all leases have in common, wherever they are kept."""

from __future__ import annotations

import secrets
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Self

from escrowmq.errors import EscrowMQError

if TYPE_CHECKING:
    from types import TracebackType

_RENEWALS: Final = 3
"""Times that a lease is renewed within its span."""


class LeaseTaken(EscrowMQError):
    """Somebody else holds the lease; try again when it is over."""


class Lease(ABC):
    """Held by one at a time, for `with`. It is renewed while the block runs, and ends by itself
    when its holder dies; ask `is_held` before each step that must not be done twice."""

    def __init__(self, name: str, *, span_s: float) -> None:
        self.is_held = False
        self._name = name
        self._span_s = span_s
        self._token = secrets.token_hex(16)
        self._over = threading.Event()
        self._renewer: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Take it; LeaseTaken while another process has it."""
        self._take()
        self.is_held = True
        self._renewer = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._renewer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give it back, if it was not taken over."""
        self._over.set()
        if self._renewer is not None:
            self._renewer.join()
        was_held, self.is_held = self.is_held, False
        self._give_back(was_held=was_held)

    def _run(self) -> None:
        while not self._over.wait(self._span_s / _RENEWALS):
            if not self._extend():
                # It may be another's by now: better to do too little than twice.
                self.is_held = False
                return

    @abstractmethod
    def _take(self) -> None:
        """Make it ours, or raise."""

    @abstractmethod
    def _extend(self) -> bool:
        """Renew it; False when it is not ours any more, or that cannot be told."""

    @abstractmethod
    def _give_back(self, *, was_held: bool) -> None:
        """Let the next one have it at once, if it is still ours; it must not raise."""
