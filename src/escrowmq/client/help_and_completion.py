"""Makes help() and completion show a client's settings and user-facing methods, and gives better
error messages for common mistakes."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterable
from typing import Any, ClassVar, Self

import msgspec


class SettingsSignature:
    """A class's `__signature__`, with every setting and its default in place of `**settings`.

    Made on first use, so that importing the SDK stays cheap."""

    def __init__(self, *options: type[msgspec.Struct]) -> None:
        self._options = options

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        written = inspect.signature(inspect.getattr_static(owner, "__init__"))
        known = [p for p in written.parameters.values() if p.kind is not p.VAR_KEYWORD][1:]
        return written.replace(
            parameters=[*known, *self._setting_parameters({p.name for p in known})]
        )

    def _setting_parameters(self, known: set[str]) -> Iterable[inspect.Parameter]:
        for options in self._options:
            for field in msgspec.structs.fields(options):
                if field.name not in known:
                    yield inspect.Parameter(
                        field.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=_field_default(field),
                        annotation=options.__annotations__.get(field.name, Any),
                    )


def _field_default(field: msgspec.structs.FieldInfo) -> object:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return inspect.Parameter.empty


class TidyCompletion:
    """Hides names that only other parts of the SDK use from completion."""

    __slots__ = ()
    _INTERNAL: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if name not in self._INTERNAL]


class KeywordOnly:
    """Lets only the name servers be positional. Another positional argument, such as the group,
    raises an error that shows the right call instead of a count of arguments."""

    def __new__(cls, *given: Any, **_named: Any) -> Self:  # noqa: ANN401 - whatever was given
        """Make the object; raise a UsageError with an example if there is a second positional
        argument."""
        if len(given) > 1 and cls.__init__.__module__.startswith(__package__):
            said = ", ".join(map(repr, given))
            raise TypeError(
                f"{cls.__name__}({said}): only the name servers may be positional, the group "
                f"is a keyword: {cls.__name__}('127.0.0.1:9876', group='orders')"
            )
        return super().__new__(cls)


class AwaitableNone:
    """The result of a method that does not wait, on an object whose other methods are awaited: it
    may be awaited too. Otherwise a mistaken `await` after `database_decides()` would raise a
    TypeError and leave the transaction to its check."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()
