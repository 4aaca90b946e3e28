from escrowmq.net import descriptors
from escrowmq.net.connection_counts import Admission, ConnectionLimits, Total


def test_connections_are_counted_in_all_and_by_address() -> None:
    admission = Admission(ConnectionLimits(connections_max=3, per_address_max=2), Total(100))
    assert [admission.admit("a"), admission.admit("a")] == ["", ""]
    assert "escrowConnectionsPerAddress=2" in admission.admit("a")
    assert admission.admit("b") == ""
    assert "escrowConnectionsMax=3" in admission.admit("c")
    admission.dismiss("a")
    assert admission.admit("c") == ""
    assert admission.count == 3


def test_without_bounds_of_their_own_ports_share_what_the_process_may_have() -> None:
    total = Total(5)
    first, second = (Admission(ConnectionLimits(), total) for _ in range(2))
    assert {first.admit("a") for _ in range(3)} == {""}
    assert {second.admit("a") for _ in range(2)} == {""}
    assert "5 connections are open" in first.admit("a")
    assert "ulimit -n" in second.admit("a")
    first.dismiss("a")
    assert second.admit("a") == ""


def test_files_and_connections_have_room_beside_each_other() -> None:
    files = 2 * descriptors.open_files_max()
    assert files + descriptors.connections_max() < descriptors.files_limit()
    assert Total().most == descriptors.connections_max()
