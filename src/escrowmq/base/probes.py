"""Decides whether a server is alive and ready, for load balancers and Kubernetes. Every port that
serves these paths gives the same answer."""

from __future__ import annotations

from typing import Protocol


class HealthReader(Protocol):
    """Reads the health of a server. Its methods are called from other threads than the server's,
    and block."""

    def metrics_text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics for Prometheus, and their media type."""

    def unready_reason(self) -> str:
        """Return why the server is not ready; empty if it is."""

    def is_alive(self) -> bool:
        """Whether the server's event loop runs."""


def health(vitals: HealthReader) -> tuple[bool, str]:
    """Answer /healthz: whether the event loop runs. If not, the process should be restarted."""
    if vitals.is_alive():
        return True, "alive"
    return False, "the event loop of the server has not answered for some seconds"


def readiness(vitals: HealthReader) -> tuple[bool, str]:
    """Answer /readyz: whether clients may be sent here; if not, the reason."""
    try:
        refusal = vitals.unready_reason()
    except TimeoutError:
        return False, "the event loop of the server has not answered for some seconds"
    return not refusal, refusal or "ready"
