import json

import pytest

from escrowmq.errors import CorruptRecord
from escrowmq.store.tables import encode_table, read_table, write_table
from escrowmq.testing.sim.disk import SimDisk


def test_table_of_the_peer_with_unquoted_keys_is_read() -> None:
    disk = SimDisk()
    disk.small["config/consumerOffset.json"] = b'{\n\t"offsetTable":{"T@G":{0:12,1:3\n\t\t}\n\t}\n}'
    assert read_table(disk, "consumerOffset.json") == {"offsetTable": {"T@G": {"0": 12, "1": 3}}}


def test_table_is_written_strictly_and_keeps_its_former_content() -> None:
    disk = SimDisk()
    write_table(disk, "t.json", {"a": {0: 1}})
    write_table(disk, "t.json", {"a": {0: 2}, "ü": []})
    assert json.loads(disk.small["config/t.json"]) == {"a": {"0": 2}, "ü": []}
    assert json.loads(disk.small["config/t.json.bak"]) == {"a": {"0": 1}}
    assert b'\n\t"a":{\n\t\t"0":2\n\t}' in encode_table({"a": {0: 2}})


@pytest.mark.parametrize("bad", [None, b"", b" \n", b'{"a":', b"\xff\xfe"])
def test_backup_stands_in_for_an_absent_or_damaged_table(bad: bytes | None) -> None:
    disk = SimDisk()
    disk.small["config/t.json.bak"] = b'{"a":1}'
    if bad is not None:
        disk.small["config/t.json"] = bad
    assert read_table(disk, "t.json") == {"a": 1}


def test_nothing_is_nothing_and_damage_is_told() -> None:
    disk = SimDisk()
    assert read_table(disk, "t.json") is None
    disk.small["config/t.json"] = b"{{{"
    with pytest.raises(CorruptRecord, match=r"config/t\.json"):
        read_table(disk, "t.json")
