"""What an operator says to a broker is heard, and sent again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from escrowmq.codec.own_signature import NUMBER, SESSION, sign_request
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields

from .place import OPERATOR, SECRETS, A, Place


@pytest.fixture(name="careful", scope="module", params=["1.0", "2.0"])
def open_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    with Place(tmp_path_factory.mktemp("careful"), acl=request.param) as found:
        found.end()
        found.set("escrowOwnSignatures=administrators")
        found.start()
        yield found


def test_the_command_line_signs_as_is_wanted(careful: Place) -> None:
    for words in (("topic", "show", "TB"), ("tx", "list"), ("broker", "list")):
        done = careful.ask(*words)
        assert (done.returncode, done.stderr) == (0, ""), words
    assert careful.ask("tx", "list", who=A).returncode != 0


def test_a_look_is_no_deletion(careful: Place) -> None:
    heard = {"topic": "TB", ACCESS_KEY: OPERATOR}
    heard[SIGNATURE] = sign_fields(heard, b"", secret=SECRETS[OPERATOR])
    with careful.line(None) as thief, careful.line(None) as other:
        for code in (202, 351, 215):
            assert thief.ask(code, heard).code == 7750
        session = (thief.ask(7721).ext or {})[SESSION]
        own = {"topic": "TB", ACCESS_KEY: OPERATOR, NUMBER: "1"}
        own[SIGNATURE] = sign_request(351, own, b"", secret=SECRETS[OPERATOR], session=session)
        assert other.ask(351, own).code == 16
        assert thief.ask(215, own).code == 16
        assert thief.ask(351, own).code == 0
        assert thief.ask(351, own).code == 16
    with careful.line("account-b") as b:
        assert b.send("TB").code == 0
