from escrowmq.net import descriptors
from escrowmq.net.connection_counts import ConnectionCounts, ConnectionLimits, TotalConnections


def test_connections_are_counted_in_all_and_by_address() -> None:
    admission = ConnectionCounts(
        ConnectionLimits(connections_max=3, per_address_max=2), TotalConnections(100)
    )
    assert [admission.count_connection("a"), admission.count_connection("a")] == ["", ""]
    assert "escrowConnectionsPerAddress=2" in admission.count_connection("a")
    assert admission.count_connection("b") == ""
    assert "escrowConnectionsMax=3" in admission.count_connection("c")
    admission.subtract_connection("a")
    assert admission.count_connection("c") == ""
    assert admission.count == 3


def test_without_bounds_of_their_own_ports_share_what_the_process_may_have() -> None:
    total = TotalConnections(5)
    first, second = (ConnectionCounts(ConnectionLimits(), total) for _ in range(2))
    assert {first.count_connection("a") for _ in range(3)} == {""}
    assert {second.count_connection("a") for _ in range(2)} == {""}
    assert "5 connections are open" in first.count_connection("a")
    assert "ulimit -n" in second.count_connection("a")
    first.subtract_connection("a")
    assert second.count_connection("a") == ""


def test_files_and_connections_have_room_beside_each_other() -> None:
    files = 2 * descriptors.open_files_max()
    assert files + descriptors.connections_max() < descriptors.files_limit()
    assert TotalConnections().connections_max == descriptors.connections_max()
