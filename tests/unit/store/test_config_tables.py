"""Tables are read as they stand, or as they stood before; what is read is said."""

import pytest

from escrowmq.codec import fastjson
from escrowmq.errors import CorruptRecord
from escrowmq.store.config_tables import load_table
from escrowmq.testing.disk import SimDisk

PATH = "config/t.json"


def taken(disk: SimDisk) -> tuple[object, str]:
    found: list[object] = []
    note = load_table(
        disk, PATH, lambda data: found.append(data and fastjson.decode_fastjson(data))
    )
    return found[-1], note


def test_table_with_unquoted_keys_is_read() -> None:
    disk = SimDisk()
    disk.small[PATH] = b'{\n\t"offsetTable":{"T@G":{0:12,1:3\n\t\t}\n\t}\n}'
    assert taken(disk) == ({"offsetTable": {"T@G": {"0": 12, "1": 3}}}, "")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (None, "is not there"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (bytes(4096), "is empty"),
        (b'{"a":', "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_former_content_stands_in_for_an_absent_or_damaged_table_and_this_is_said(
    bad: bytes | None, said: str
) -> None:
    disk = SimDisk()
    disk.small[PATH + ".bak"] = b'{"a":1}'
    if bad is not None:
        disk.small[PATH] = bad
    value, note = taken(disk)
    assert value == {"a": 1}
    assert note.startswith(f"{PATH} {said}")
    assert note.endswith(f"read from {PATH}.bak, which may be a little older")


def test_nothing_is_nothing() -> None:
    assert taken(SimDisk()) == (None, "")


@pytest.mark.parametrize("former", [None, b"", b"[[["])
def test_damage_without_a_good_former_content_is_told_of_both(former: bytes | None) -> None:
    disk = SimDisk()
    disk.small[PATH] = b"{{{"
    if former is not None:
        disk.small[PATH + ".bak"] = former
    with pytest.raises(
        CorruptRecord, match=r"t\.json cannot be read .*, and .*\.bak .* remove both"
    ):
        taken(disk)


def test_former_content_that_is_damaged_does_not_pass_for_a_new_store() -> None:
    disk = SimDisk()
    disk.small[PATH + ".bak"] = b"{{{"
    with pytest.raises(CorruptRecord, match=r"t\.json is not there, and .*\.bak cannot be read"):
        taken(disk)


def test_a_table_keeps_its_former_content_and_other_files_none() -> None:
    disk = SimDisk()
    for data in (b"1", b"2"):
        disk.replace(PATH, data)
        disk.replace("escrow/pending", data)
    disk.replace("config/keys.json", b"1", is_private=True)
    disk.replace("config/keys.json", b"2", is_private=True)
    assert disk.small[PATH + ".bak"] == b"1"
    assert [path for path in disk.small if path.endswith(".bak")] == [PATH + ".bak"]
