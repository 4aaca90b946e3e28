"""SQL92 as RocketMQ has it (SelectorParser.jj, 5.3.3): text to predicate.

  or         and { OR and }
  and        equality { AND equality }
  equality   comparison { = comparison | <> comparison | IS [NOT] NULL }
  comparison unary { (> | >= | < | <=) unary | [NOT] BETWEEN unary AND unary
                   | [NOT] IN ( text {, text} ) | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text }
  unary      + unary | - unary | NOT unary | primary
  primary    number | text | TRUE | FALSE | NULL | name | ( or )

NOT binds tighter than `=`: `NOT a = 5` compares a truth value with 5, as at RocketMQ. LIKE,
arithmetic, hexadecimal and octal numbers do not exist there.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from escrowmq.filter import evaluate as nodes
from escrowmq.filter.evaluate import DEPTH_MAX, Node, Truth
from escrowmq.filter.operands import FilterError, OperandKind

LENGTH_MAX: Final = 65_536
"""Limit of the characters of an expression."""

COMPILED_MAX: Final = 256
"""Limit of the cached compiled expressions; RocketMQ caches 100."""

_TOKEN: Final = re.compile(
    # The first group is atomic: text that it has skipped is never matched in another way.
    r"""(?>(?:[ \t\n\r\f]+|--[^\n\r]*[\n\r]|/\*.*?\*/)*)
    (?:
      (?P<double>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<whole>0|[1-9][0-9]*[lL]?)
    | (?P<text>'(?:''|[^'])*')
    | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<sign><>|>=|<=|[=<>(),+\-])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: Final = frozenset(
    {
        "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS",
        "STARTSWITH", "ENDSWITH",
    }
)  # fmt: skip
_SEARCHES: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_ORDERS: Final = frozenset({">", ">=", "<", "<="})
_LITERALS: Final[dict[str, tuple[bool | None, OperandKind]]] = {
    "TRUE": (True, OperandKind.TRUTH),
    "FALSE": (False, OperandKind.TRUTH),
    "NULL": (None, OperandKind.NOTHING),
}
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_LONG_DIGITS: Final = 19


class _Token:
    """A token of an expression. `kind` is a word or sign itself, or one of text, whole, double,
    name, end."""

    __slots__ = ("at", "end", "kind", "text")

    def __init__(self, kind: str, text: str, at: int, end: int) -> None:
        self.kind = kind
        self.text = text
        self.at = at
        self.end = end


class _Parser:
    """Parses an expression. It reads one token ahead at most, because text that RocketMQ does not
    read need not be valid."""

    def __init__(self, source: str, *, tokens_max: int) -> None:
        self._source = source
        self._tokens_max = tokens_max
        self._depth = 0
        self._count = 0
        self._token = self._read(0)

    def parse(self, *, is_strict: bool) -> Node:
        root = nodes.as_truth(self._or(), at=0)
        if is_strict and self._token.kind != "end":
            raise self._refuse("the end, AND or OR")
        return root

    def _read(self, at: int) -> _Token:
        found = _TOKEN.match(self._source, at)
        if found is None:
            start = len(self._source) - len(self._source[at:].lstrip(" \t\n\r\f"))
            raise FilterError(
                f"{self._source[start : start + 16]!r} at character {start + 1} is no part of "
                "SQL92; if it is text, put it in single quotes",
                start,
            )
        kind = found.lastgroup
        assert kind is not None
        text, start = found[kind], found.start(kind)
        if kind == "sign":
            kind = text
        elif kind == "name" and text.upper() in _WORDS:
            kind = text.upper()
        return _Token(kind, text, start, found.end())

    def _take(self) -> _Token:
        token = self._token
        self._count += 1
        if self._count > self._tokens_max:
            raise FilterError(
                f"an expression of more than {self._tokens_max} names, numbers, signs and words; "
                "select by a property that many messages share, or by IN and a shorter list",
                token.at,
            )
        self._token = self._read(token.end)
        return token

    def _expect(self, kind: str, wanted: str) -> _Token:
        if self._token.kind != kind:
            raise self._refuse(wanted)
        return self._take()

    def _refuse(self, wanted: str) -> FilterError:
        token = self._token
        seen = "the end" if token.kind == "end" else repr(token.text[:32])
        return FilterError(
            f"{wanted} is expected at character {token.at + 1}, not {seen}", token.at
        )

    def _or(self) -> Node:
        at = self._token.at
        left = self._and()
        if self._token.kind != "OR":
            return left
        terms = [nodes.as_truth(left, at=at)]
        while self._token.kind == "OR":
            self._take()
            at = self._token.at
            terms.append(nodes.as_truth(self._and(), at=at))
        return nodes.any_of(terms, at=at)

    def _and(self) -> Node:
        at = self._token.at
        left = self._equality()
        if self._token.kind != "AND":
            return left
        terms = [nodes.as_truth(left, at=at)]
        while self._token.kind == "AND":
            self._take()
            at = self._token.at
            terms.append(nodes.as_truth(self._equality(), at=at))
        return nodes.all_of(terms, at=at)

    def _equality(self) -> Node:
        left = self._comparison()
        while self._token.kind in ("=", "<>", "IS"):
            token = self._take()
            at = token.at
            if token.kind == "IS":
                is_not = self._token.kind == "NOT"
                if is_not:
                    self._take()
                self._expect("NULL", "NULL" if is_not else "NULL or NOT NULL")
                left = nodes.is_null(left, at=at)
                if is_not:
                    left = nodes.negation(left, at=at)
                continue
            left = nodes.equal(left, self._comparison(), at=at)
            if token.kind == "<>":
                left = nodes.negation(left, at=at)
        return left

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            token = self._token
            if token.kind in _ORDERS:
                self._take()
                left = nodes.order(left, token.kind, self._unary(), at=token.at)
                continue
            is_not = token.kind == "NOT"
            if is_not:
                self._take()
            if self._token.kind == "BETWEEN":
                left = self._between(left, is_not)
            elif self._token.kind == "IN":
                left = self._in(left, is_not)
            elif self._token.kind in _SEARCHES:
                word = self._take()
                text = self._text()
                left = nodes.search(left, word.kind, text, is_not=is_not, at=word.at)
            elif is_not:
                raise self._refuse("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
            else:
                return left

    def _between(self, left: Node, is_not: bool) -> Node:
        at = self._take().at
        low = self._unary()
        self._expect("AND", "AND")
        high = self._unary()
        if is_not:
            return nodes.not_between(left, low, high, at=at)
        return nodes.between(left, low, high, at=at)

    def _in(self, left: Node, is_not: bool) -> Node:
        at = self._take().at
        self._expect("(", "(")
        texts = [self._text()]
        while self._token.kind == ",":
            self._take()
            texts.append(self._text())
        self._expect(")", "`,` or `)`")
        return nodes.one_of(left, texts, is_not=is_not, at=at)

    def _text(self) -> str:
        return _unquote(self._expect("text", "text in single quotes").text)

    def _unary(self) -> Node:
        token = self._token
        if token.kind not in ("+", "-", "NOT"):
            return self._primary()
        self._take()
        self._descend(token)
        node = self._unary()
        self._depth -= 1
        if token.kind == "-":
            return nodes.negate(node, at=token.at)
        return nodes.negation(node, at=token.at) if token.kind == "NOT" else node

    def _descend(self, token: _Token) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterError(
                f"nested more than {DEPTH_MAX} deep at character {token.at + 1}", token.at
            )

    def _primary(self) -> Node:
        token = self._token
        kind = token.kind
        if kind == "name":
            return nodes.prop(self._take().text)
        if kind == "text":
            return nodes.literal(self._text(), OperandKind.TEXT)
        if kind == "whole":
            return _whole_number(self._take())
        if kind == "double":
            return _double(self._take())
        if kind in _LITERALS:
            self._take()
            return nodes.literal(*_LITERALS[kind])
        if kind != "(":
            raise self._refuse("a property, a number, text, TRUE, FALSE, NULL, NOT or `(`")
        self._take()
        self._descend(token)
        node = self._or()
        self._depth -= 1
        self._expect(")", "`)`")
        return node


def _unquote(image: str) -> str:
    return image[1:-1].replace("''", "'")


def _whole_number(token: _Token) -> Node:
    digits = token.text.rstrip("lL")
    number = int(digits) if len(digits) <= _LONG_DIGITS else _LONG_MAX + 1
    if number > _LONG_MAX:
        # The sign is not part of the number, so RocketMQ refuses Long.MIN_VALUE too.
        raise FilterError(f"{digits[:32]} at character {token.at + 1} is beyond 64 bits", token.at)
    return nodes.literal(number, OperandKind.INT if number <= _INT_MAX else OperandKind.LONG)


def _double(token: _Token) -> Node:
    number = float(token.text)
    if number == 0 or number == float("inf"):
        # ConstantExpression.createFloat checks against Double.MIN_VALUE, the least above zero.
        raise FilterError(
            f"{token.text[:32]} at character {token.at + 1}: decimals are above zero and finite; "
            "write 0 for zero",
            token.at,
        )
    return nodes.literal(number, OperandKind.DOUBLE)


def compile_sql_anew(
    source: str, *, is_strict: bool = False, tokens_max: int = LENGTH_MAX
) -> Truth:
    """Compile an expression to a predicate: properties of a message to True, False or None
    (unknown); only True matches. Raises FilterError with the position and what is expected.

    Like RocketMQ, it ignores what follows a whole expression (`a = 1 b` is `a = 1`); with
    `is_strict`, it refuses that."""
    if len(source) > LENGTH_MAX:
        raise FilterError(
            f"an expression of {len(source)} characters; {LENGTH_MAX} are allowed", LENGTH_MAX
        )
    return nodes.predicate(_Parser(source, tokens_max=tokens_max).parse(is_strict=is_strict))


compile_sql: Final = functools.lru_cache(maxsize=COMPILED_MAX)(compile_sql_anew)
"""Compile an expression like `compile_sql_anew`, with a cache. Only for callers that choose their
expressions themselves."""
