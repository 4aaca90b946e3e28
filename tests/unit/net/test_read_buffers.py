from escrowmq.net.read_buffers import READ_SIZE, SHARE_SIZE_MIN, Reads


def test_peers_that_are_behind_share_a_turn() -> None:
    reads = Reads()
    sizes = []
    for peer in range(12):
        reads.fall_behind(peer)
        reads.fall_behind(peer)
        sizes.append(len(reads.room))
    assert sizes[:4] == [READ_SIZE, READ_SIZE // 2, READ_SIZE // 3, READ_SIZE // 4]
    assert sizes[7:] == [SHARE_SIZE_MIN] * 5
    for peer in range(11):
        reads.catch_up(peer)
    assert len(reads.room) == READ_SIZE
    reads.catch_up(11)
    reads.catch_up(11)
    assert len(reads.room) == READ_SIZE
    assert not reads.behind


def test_what_was_read_stands_where_it_was_written() -> None:
    reads = Reads()
    reads.room[:4] = b"word"
    for peer in range(9):
        reads.fall_behind(peer)
    assert bytes(reads.room[:4]) == b"word"
