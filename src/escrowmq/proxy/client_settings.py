"""Completes the settings that a client sends with the server's own, and sends them back to it."""

from __future__ import annotations

from typing import Final

from escrowmq.base.delay_levels import DELAY_LEVELS_S
from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.base.guests import GroupFacts
from escrowmq.proxy.gen import v2

_ATTEMPTS_MAX: Final = 3
_WAIT_MAX_MS: Final = 365 * 24 * 3_600 * 1_000
"""The longest retry delay that is sent to clients: they compute in nanoseconds, which a longer one
would exceed."""
_RECEIVE_COUNT: Final = 32
_POLL_S: Final = 20
_LITE_QUOTA: Final = 1_200
_LITE_TOPIC_SIZE: Final = 64
"""If one of these two settings is 0, Python's lite consumers discard all settings."""

_EXPONENTIAL: Final = {"initial": 5_000, "max": 7_200_000, "multiplier": 2}


def complete_settings(
    settings: v2.Settings, group: GroupFacts | None, *, body_size_max: int
) -> v2.Settings:
    """Return a client's settings, completed with the server's."""
    found = v2.Settings()
    found.CopyFrom(settings)
    found.metric.Clear()
    found.metric.on = False  # without the field the Python client receives nothing
    policy = found.backoff_policy
    policy.Clear()
    if settings.HasField("subscription"):
        facts = group or GroupFacts()
        policy.max_attempts = min(facts.retries_max, INT_MAX - 1) + 1
        _add_retry_delays(policy, facts.policy)
        subscription = found.subscription
        subscription.fifo = facts.is_orderly
        subscription.receive_batch_size = _RECEIVE_COUNT
        subscription.long_polling_timeout.seconds = _POLL_S
        subscription.lite_subscription_quota = _LITE_QUOTA
        subscription.max_lite_topic_size = _LITE_TOPIC_SIZE
    else:
        policy.max_attempts = _ATTEMPTS_MAX
        policy.exponential_backoff.initial.FromMilliseconds(10)
        policy.exponential_backoff.max.FromMilliseconds(1_000)
        policy.exponential_backoff.multiplier = 2
        found.publishing.max_body_size = body_size_max
        found.publishing.validate_message_type = True
    return found


def _add_retry_delays(policy: v2.RetryPolicy, wanted: dict[str, object]) -> None:
    """Add a consumer group's retry delays as operators have configured them."""
    if wanted.get("type") == "EXPONENTIAL":
        own = {**_EXPONENTIAL, **_valid_numbers(wanted.get("exponentialRetryPolicy"))}
        exponential = policy.exponential_backoff
        exponential.initial.FromMilliseconds(own["initial"])
        exponential.max.FromMilliseconds(own["max"])
        exponential.multiplier = own["multiplier"]
        return
    steps = wanted.get("customizedRetryPolicy")
    listed = steps.get("next") if isinstance(steps, dict) else None
    spans = map(_valid_number, listed) if isinstance(listed, list) else ()
    known = [span_ms for span_ms in spans if span_ms is not None]
    for span_ms in known or [level * 1_000 for level in DELAY_LEVELS_S]:
        policy.customized_backoff.next.add().FromMilliseconds(span_ms)


def _valid_numbers(found: object) -> dict[str, int]:
    if not isinstance(found, dict):
        return {}
    return {key: number for key, value in found.items() if (number := _valid_number(value))}


def _valid_number(value: object) -> int | None:
    """Return the value if it is a number that clients accept; None otherwise. Operators may have
    written anything."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    return min(value, _WAIT_MAX_MS)
