from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.core.namespace import with_namespace, without_namespace

names = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)


@given(names, names, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_a_namespace_comes_off_as_it_went_on(name: str, namespace: str, prefix: str) -> None:
    wrapped = with_namespace(prefix + name, namespace)
    assert wrapped == f"{prefix}{namespace}%{name}" or wrapped == name
    assert without_namespace(wrapped, namespace) == prefix + name
    assert with_namespace(wrapped, namespace) == wrapped


def test_names_of_the_system_stay_as_they_are() -> None:
    for name in ("TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "CID_RMQ_SYS_TRANS"):
        assert with_namespace(name, "ns") == name
    assert with_namespace("T", "") == without_namespace("T", "") == "T"
    assert with_namespace("", "ns") == ""


def test_a_name_without_the_namespace_is_the_users_already() -> None:
    assert without_namespace("Other", "ns") == "Other"
    assert without_namespace("other%T", "ns") == "other%T"
    assert without_namespace("%T", "") == "%T"
