from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.core.namespace import unwrap, wrap

names = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)


@given(names, names, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_a_namespace_comes_off_as_it_went_on(name: str, namespace: str, prefix: str) -> None:
    wrapped = wrap(prefix + name, namespace)
    assert wrapped == f"{prefix}{namespace}%{name}" or wrapped == name
    assert unwrap(wrapped, namespace) == prefix + name
    assert wrap(wrapped, namespace) == wrapped


def test_names_of_the_system_stay_as_they_are() -> None:
    for name in ("TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "CID_RMQ_SYS_TRANS"):
        assert wrap(name, "ns") == name
    assert wrap("T", "") == unwrap("T", "") == "T"
    assert wrap("", "ns") == ""


def test_a_name_without_the_namespace_is_the_users_already() -> None:
    assert unwrap("Other", "ns") == "Other"
    assert unwrap("other%T", "ns") == "other%T"
    assert unwrap("%T", "") == "%T"
