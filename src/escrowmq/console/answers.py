"""The shape of answers: JSON members are named as those of the command line's `--json`."""

from __future__ import annotations

import msgspec


class Answer(msgspec.Struct, kw_only=True, rename="camel"):
    """Base class of the API's answers and of their parts."""
