"""Base of all leases, wherever they are stored. A lease makes one process of many do the work."""

from __future__ import annotations

import secrets
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Self

from escrowmq.errors import EscrowMQError
from escrowmq.net.clock import steady_s

if TYPE_CHECKING:
    from types import TracebackType

_RENEWALS: Final = 3
"""How often a lease is renewed within its duration."""


class LeaseTaken(EscrowMQError):
    """Raised while another process holds the lease; try again when it has expired."""


class Lease(ABC):
    """A lock for `with` that one process holds at a time. It is renewed while the block runs, and
    expires by itself if its holder dies. Check `is_held` before each step that must not be done
    twice."""

    def __init__(self, name: str, *, span_s: float) -> None:
        self._held_until_s = 0.0
        """Until when the lease is held, by the steady clock; 0 if it is not."""
        self._name = name
        self._span_s = span_s
        self._token = secrets.token_hex(16)
        self._over = threading.Event()
        self._renewer: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Take the lease; raises LeaseTaken while another process has it."""
        asked_s = steady_s()
        self._acquire()
        self._over.clear()  # this object may have held it before
        self._held_until_s = asked_s + self._span_s
        self._renewer = threading.Thread(
            target=self._renew_periodically, name=self._name, daemon=True
        )
        self._renewer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the lease, unless another process has taken it over."""
        self._over.set()
        if self._renewer is not None:
            self._renewer.join()
        was_held, self._held_until_s = bool(self._held_until_s), 0.0
        self._release(was_held=was_held)

    @property
    def is_held(self) -> bool:
        """Whether this process has the lease. It has not if it was suspended, or a renewal has had
        no answer, for so long that another process may have it by now."""
        return steady_s() < self._held_until_s

    def _renew_periodically(self) -> None:
        while not self._over.wait(self._span_s / _RENEWALS):
            asked_s = steady_s()
            if not self._renew():
                # Another process may have it by now: better to do too little than to do it twice.
                self._held_until_s = 0.0
                return
            self._held_until_s = asked_s + self._span_s

    @abstractmethod
    def _acquire(self) -> None:
        """Acquire the lease; raise LeaseTaken if another process has it."""

    @abstractmethod
    def _renew(self) -> bool:
        """Renew the lease; return False if it is no longer ours, or that is unknown."""

    @abstractmethod
    def _release(self, *, was_held: bool) -> None:
        """Release the lease immediately if it is still ours; must not raise."""
