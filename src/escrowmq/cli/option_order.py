"""Lets options be given before a verb, after it, or after its action. argparse accepts each only in
one position, so they are moved there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_FRONT_OPTIONS: Final = {"--log-level": 1, "--log-format": 1}
"""Options of the whole program, each with the number of its values."""

_BACK_OPTIONS: Final = {
    "-n": 1, "--name-servers": 1, "--context": 1, "-o": 1, "--output": 1, "--json": 0,
    "--access-key": 1, "--secret-key-file": 1, "--secret-key": 1, "--namespace": 1, "--tls": 0,
    "--tls-trusted": 1, "--tls-cert": 1, "--tls-key": 1, "--tls-any-name": 0, "--tls-no-verify": 0,
    "--timeout": 1,
}  # fmt: skip
"""Options that every action has (cluster_verbs.add_action), each with the number of its values."""

_VERB_WORDS_COUNT: Final = 2
"""The number of words of a verb with its action."""


def move_options(words: Sequence[str]) -> list[str]:
    """Return the command line with each option moved to where argparse expects it."""
    front: list[str] = []
    back: list[str] = []
    rest: list[str] = []
    tail: list[str] = []
    count = at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            tail = list(words[at:])
            break
        name = word.partition("=")[0]
        values = _FRONT_OPTIONS.get(
            name, _BACK_OPTIONS.get(name, 0) if count < _VERB_WORDS_COUNT else 0
        )
        end = at + 1 + (values if name == word else 0)
        if name in _FRONT_OPTIONS:
            front += words[at:end]
        elif name in _BACK_OPTIONS and count < _VERB_WORDS_COUNT:
            back += words[at:end]
        else:
            end = at + 1
            rest.append(word)
            count += not word.startswith("-")
        at = end
    return [*front, *rest, *back, *tail]
