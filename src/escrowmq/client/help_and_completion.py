"""What help() and completion show of a client: its settings, and only what is for users; and what
bears with a slip of the pen."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterable
from typing import Any, ClassVar, Self

import msgspec


class Settings:
    """A class's `__signature__`, with every setting and its default where `**settings` stands.

    Made when somebody looks: to import the SDK should cost nothing for it."""

    def __init__(self, *options: type[msgspec.Struct]) -> None:
        self._options = options

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        written = inspect.signature(inspect.getattr_static(owner, "__init__"))
        known = [p for p in written.parameters.values() if p.kind is not p.VAR_KEYWORD][1:]
        return written.replace(parameters=[*known, *self._settings({p.name for p in known})])

    def _settings(self, known: set[str]) -> Iterable[inspect.Parameter]:
        for options in self._options:
            for field in msgspec.structs.fields(options):
                if field.name not in known:
                    yield inspect.Parameter(
                        field.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=_default(field),
                        annotation=options.__annotations__.get(field.name, Any),
                    )


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return inspect.Parameter.empty


class Tidy:
    """Completion leaves out what is public for other parts of the SDK alone."""

    __slots__ = ()
    _INTERNAL: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if name not in self._INTERNAL]


class KeywordGroup:
    """Only the name servers are given by their place. Whoever gives more, or the group in their
    place, reads how it is meant instead of a count of arguments."""

    def __new__(cls, *given: Any, **_named: Any) -> Self:  # noqa: ANN401 - whatever was given
        """As ever, unless a second thing has no name."""
        if len(given) > 1 and cls.__init__.__module__.startswith(__package__):
            said = ", ".join(map(repr, given))
            raise TypeError(
                f"{cls.__name__}({said}): only the name servers are given by position, the group "
                f"by its name: {cls.__name__}('127.0.0.1:9876', group='orders')"
            )
        return super().__new__(cls)


class Done:
    """What a method returns that waits for nothing, of an object whose methods are awaited: it may
    be awaited, too. The TypeError, behind a transaction's `database_decides()`, would leave the
    transaction to its check."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()
