"""Whether a server is alive and ready, as load balancers and Kubernetes ask: every port that serves
it gives the same answer."""

from __future__ import annotations

from typing import Protocol


class Vitals(Protocol):
    """How a server is; its methods are for threads other than the server's, and wait."""

    def figures(self, accept: str) -> tuple[bytes, str]:
        """Figures for Prometheus, and their media type."""

    def refusal(self) -> str:
        """Why it is not ready; empty when it is."""

    def is_alive(self) -> bool:
        """Whether its event loop turns."""


def health(vitals: Vitals) -> tuple[bool, str]:
    """/healthz: whether the process does anything at all; one that does not is to be restarted."""
    if vitals.is_alive():
        return True, "alive"
    return False, "the event loop of the server has not answered for some seconds"


def readiness(vitals: Vitals) -> tuple[bool, str]:
    """/readyz: whether clients are to be sent here, and why not."""
    try:
        refusal = vitals.refusal()
    except TimeoutError:
        return False, "the event loop of the server has not answered for some seconds"
    return not refusal, refusal or "ready"
