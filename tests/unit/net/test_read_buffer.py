from escrowmq.net.read_buffer import READ_SIZE, SHARE_SIZE_MIN, ReadBuffer


def test_peers_that_are_behind_share_a_turn() -> None:
    reads = ReadBuffer()
    sizes = []
    for peer in range(12):
        reads.add_backlog(peer)
        reads.add_backlog(peer)
        sizes.append(len(reads.next_buffer))
    assert sizes[:4] == [READ_SIZE, READ_SIZE // 2, READ_SIZE // 3, READ_SIZE // 4]
    assert sizes[7:] == [SHARE_SIZE_MIN] * 5
    for peer in range(11):
        reads.end_backlog(peer)
    assert len(reads.next_buffer) == READ_SIZE
    reads.end_backlog(11)
    reads.end_backlog(11)
    assert len(reads.next_buffer) == READ_SIZE
    assert not reads.backlogged


def test_what_was_read_stands_where_it_was_written() -> None:
    reads = ReadBuffer()
    reads.next_buffer[:4] = b"word"
    for peer in range(9):
        reads.add_backlog(peer)
    assert bytes(reads.next_buffer[:4]) == b"word"
