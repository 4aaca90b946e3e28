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
        self._token = self._read_token(0)

    def parse(self, *, is_strict: bool) -> Node:
        root = nodes.to_truth_node(self._parse_or(), at=0)
        if is_strict and self._token.kind != "end":
            raise self._syntax_error("the end, AND or OR")
        return root

    def _read_token(self, at: int) -> _Token:
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

    def _next_token(self) -> _Token:
        token = self._token
        self._count += 1
        if self._count > self._tokens_max:
            raise FilterError(
                f"an expression of more than {self._tokens_max} names, numbers, signs and words; "
                "select by a property that many messages share, or by IN and a shorter list",
                token.at,
            )
        self._token = self._read_token(token.end)
        return token

    def _expect_token(self, kind: str, wanted: str) -> _Token:
        if self._token.kind != kind:
            raise self._syntax_error(wanted)
        return self._next_token()

    def _syntax_error(self, wanted: str) -> FilterError:
        token = self._token
        seen = "the end" if token.kind == "end" else repr(token.text[:32])
        return FilterError(
            f"{wanted} is expected at character {token.at + 1}, not {seen}", token.at
        )

    def _parse_or(self) -> Node:
        at = self._token.at
        left = self._parse_and()
        if self._token.kind != "OR":
            return left
        terms = [nodes.to_truth_node(left, at=at)]
        while self._token.kind == "OR":
            self._next_token()
            at = self._token.at
            terms.append(nodes.to_truth_node(self._parse_and(), at=at))
        return nodes.logical_or(terms, at=at)

    def _parse_and(self) -> Node:
        at = self._token.at
        left = self._parse_equality()
        if self._token.kind != "AND":
            return left
        terms = [nodes.to_truth_node(left, at=at)]
        while self._token.kind == "AND":
            self._next_token()
            at = self._token.at
            terms.append(nodes.to_truth_node(self._parse_equality(), at=at))
        return nodes.logical_and(terms, at=at)

    def _parse_equality(self) -> Node:
        left = self._parse_comparison()
        while self._token.kind in ("=", "<>", "IS"):
            token = self._next_token()
            at = token.at
            if token.kind == "IS":
                is_not = self._token.kind == "NOT"
                if is_not:
                    self._next_token()
                self._expect_token("NULL", "NULL" if is_not else "NULL or NOT NULL")
                left = nodes.is_null(left, at=at)
                if is_not:
                    left = nodes.logical_not(left, at=at)
                continue
            left = nodes.equals(left, self._parse_comparison(), at=at)
            if token.kind == "<>":
                left = nodes.logical_not(left, at=at)
        return left

    def _parse_comparison(self) -> Node:
        left = self._parse_unary()
        while True:
            token = self._token
            if token.kind in _ORDERS:
                self._next_token()
                left = nodes.order_comparison(left, token.kind, self._parse_unary(), at=token.at)
                continue
            is_not = token.kind == "NOT"
            if is_not:
                self._next_token()
            if self._token.kind == "BETWEEN":
                left = self._parse_between(left, is_not)
            elif self._token.kind == "IN":
                left = self._parse_in(left, is_not)
            elif self._token.kind in _SEARCHES:
                word = self._next_token()
                text = self._parse_text()
                left = nodes.text_search(left, word.kind, text, is_not=is_not, at=word.at)
            elif is_not:
                raise self._syntax_error("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
            else:
                return left

    def _parse_between(self, left: Node, is_not: bool) -> Node:
        at = self._next_token().at
        low = self._parse_unary()
        self._expect_token("AND", "AND")
        high = self._parse_unary()
        if is_not:
            return nodes.not_between(left, low, high, at=at)
        return nodes.between(left, low, high, at=at)

    def _parse_in(self, left: Node, is_not: bool) -> Node:
        at = self._next_token().at
        self._expect_token("(", "(")
        texts = [self._parse_text()]
        while self._token.kind == ",":
            self._next_token()
            texts.append(self._parse_text())
        self._expect_token(")", "`,` or `)`")
        return nodes.in_list(left, texts, is_not=is_not, at=at)

    def _parse_text(self) -> str:
        return _unquote(self._expect_token("text", "text in single quotes").text)

    def _parse_unary(self) -> Node:
        token = self._token
        if token.kind not in ("+", "-", "NOT"):
            return self._parse_primary()
        self._next_token()
        self._count_depth(token)
        node = self._parse_unary()
        self._depth -= 1
        if token.kind == "-":
            return nodes.unary_minus(node, at=token.at)
        return nodes.logical_not(node, at=token.at) if token.kind == "NOT" else node

    def _count_depth(self, token: _Token) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterError(
                f"nested more than {DEPTH_MAX} deep at character {token.at + 1}", token.at
            )

    def _parse_primary(self) -> Node:
        token = self._token
        kind = token.kind
        if kind == "name":
            return nodes.property_node(self._next_token().text)
        if kind == "text":
            return nodes.literal_node(self._parse_text(), OperandKind.TEXT)
        if kind == "whole":
            return _whole_number_node(self._next_token())
        if kind == "double":
            return _double_node(self._next_token())
        if kind in _LITERALS:
            self._next_token()
            return nodes.literal_node(*_LITERALS[kind])
        if kind != "(":
            raise self._syntax_error("a property, a number, text, TRUE, FALSE, NULL, NOT or `(`")
        self._next_token()
        self._count_depth(token)
        node = self._parse_or()
        self._depth -= 1
        self._expect_token(")", "`)`")
        return node


def _unquote(image: str) -> str:
    return image[1:-1].replace("''", "'")


def _whole_number_node(token: _Token) -> Node:
    digits = token.text.rstrip("lL")
    number = int(digits) if len(digits) <= _LONG_DIGITS else _LONG_MAX + 1
    if number > _LONG_MAX:
        # The sign is not part of the number, so RocketMQ refuses Long.MIN_VALUE too.
        raise FilterError(f"{digits[:32]} at character {token.at + 1} is beyond 64 bits", token.at)
    return nodes.literal_node(number, OperandKind.INT if number <= _INT_MAX else OperandKind.LONG)


def _double_node(token: _Token) -> Node:
    number = float(token.text)
    if number == 0 or number == float("inf"):
        # ConstantExpression.createFloat checks against Double.MIN_VALUE, the least above zero.
        raise FilterError(
            f"{token.text[:32]} at character {token.at + 1}: decimals are above zero and finite; "
            "write 0 for zero",
            token.at,
        )
    return nodes.literal_node(number, OperandKind.DOUBLE)


def compile_sql_uncached(
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
    return nodes.to_predicate(_Parser(source, tokens_max=tokens_max).parse(is_strict=is_strict))


compile_sql: Final = functools.lru_cache(maxsize=COMPILED_MAX)(compile_sql_uncached)
"""Compile an expression like `compile_sql_uncached`, with a cache. Only for callers that choose
their expressions themselves."""
