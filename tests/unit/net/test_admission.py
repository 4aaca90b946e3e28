from escrowmq.net.admission import Admission, ConnectionLimits


def test_connections_are_counted_in_all_and_by_address() -> None:
    admission = Admission(ConnectionLimits(connections_max=3, per_address_max=2))
    assert [admission.admit("a"), admission.admit("a")] == ["", ""]
    assert "escrowConnectionsPerAddress=2" in admission.admit("a")
    assert admission.admit("b") == ""
    assert "escrowConnectionsMax=3" in admission.admit("c")
    admission.dismiss("a")
    assert admission.admit("c") == ""
    assert admission.count == 3


def test_without_bounds_everybody_is_admitted() -> None:
    admission = Admission(ConnectionLimits())
    assert {admission.admit("a") for _ in range(1_000)} == {""}
