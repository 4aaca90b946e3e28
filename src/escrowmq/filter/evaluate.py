"""Nodes of an SQL92 expression, each a closure over its operands.

The builders refuse what RocketMQ's parser refuses, and the closures return what RocketMQ's
expression classes (5.3.3) return, oddities included; comments name the class of each oddity."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping
from typing import Final

from escrowmq.filter.operands import (
    NUMBERS,
    FilterError,
    IncomparableError,
    OperandKind,
    Value,
    compare_doubles,
    compare_values,
    parse_java_double,
    parse_java_integer,
)

DEPTH_MAX: Final = 64
"""Limit of the depth of nested nodes; RocketMQ's only limit is its stack."""

_DIGITS_SAFE: Final = {OperandKind.INT: 10, OperandKind.LONG: 19}
"""By type: a whole number with fewer digits than this is in range."""

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value | None]
Truth = Callable[[Properties], bool | None]
Holds = Callable[[float, float], bool]

_FLIPPED: Final[dict[str, Holds]] = {
    ">": operator.lt,
    ">=": operator.le,
    "<": operator.gt,
    "<=": operator.ge,
}
_ORDERS: Final[dict[str, Holds]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class NodeKind(enum.Enum):
    """What a node is, as far as RocketMQ's parser treats nodes differently."""

    LITERAL = 0
    PROPERTY = 1
    NEGATED = 2
    TRUTH = 3


class Node:
    """One part of an expression."""

    __slots__ = ("depth", "evaluate", "node_kind", "operand_kind", "value")

    def __init__(
        self,
        node_kind: NodeKind,
        operand_kind: OperandKind,
        evaluate: Evaluate,
        *,
        value: Value | None = None,
        depth: int = 0,
    ) -> None:
        self.node_kind = node_kind
        self.operand_kind = operand_kind
        self.evaluate = evaluate
        self.value = value
        self.depth = depth

    @property
    def is_number(self) -> bool:
        """Whether the node is a constant number."""
        return self.value is not None and self.operand_kind in NUMBERS


def _depth_above(*below: Node, at: int) -> int:
    depth = 1 + max(node.depth for node in below)
    if depth > DEPTH_MAX:
        raise FilterError(f"nested more than {DEPTH_MAX} deep at character {at + 1}", at)
    return depth


def _truth_node(evaluate: Truth, depth: int) -> Node:
    return Node(NodeKind.TRUTH, OperandKind.TRUTH, evaluate, depth=depth)


def literal_node(value: Value | None, kind: OperandKind) -> Node:
    """Make a node for a constant as it is written."""
    return Node(NodeKind.LITERAL, kind, lambda _: value, value=value)


def property_node(name: str) -> Node:
    """Make a node for a property of the message."""

    def evaluate(properties: Properties) -> str | None:
        return properties.get(name)

    return Node(NodeKind.PROPERTY, OperandKind.TEXT, evaluate, value=name)


def unary_minus(node: Node, *, at: int) -> Node:
    """Make a unary minus. Properties are text, which RocketMQ (UnaryExpression) negates to null."""
    depth = _depth_above(node, at=at)
    if node.is_number:
        assert isinstance(node.value, int | float)
        number = -node.value
        return Node(
            NodeKind.NEGATED, node.operand_kind, lambda _: number, value=number, depth=depth
        )
    below = node.evaluate

    def evaluate(properties: Properties) -> None:
        below(properties)  # it may refuse the message

    return Node(NodeKind.NEGATED, OperandKind.NOTHING, evaluate, depth=depth)


def to_truth_node(node: Node, *, at: int) -> Node:
    """Make a node that is used as a boolean. A property used so is false, or null if the message
    does not have it."""
    if node.node_kind is NodeKind.TRUTH or (
        node.node_kind is NodeKind.LITERAL
        and node.operand_kind in (OperandKind.TRUTH, OperandKind.NOTHING)
    ):
        return node
    if node.node_kind is not NodeKind.PROPERTY:
        raise FilterError(
            f"a truth value is expected at character {at + 1}, such as `a = 1` or `b IS NULL`", at
        )
    below = node.evaluate

    # UnaryExpression.createBooleanCast: even the text `true` is no Boolean, hence false.
    def evaluate(properties: Properties) -> bool | None:
        return None if below(properties) is None else False

    return _truth_node(evaluate, _depth_above(node, at=at))


def logical_not(node: Node, *, at: int) -> Node:
    """Make NOT: null stays null."""
    node = to_truth_node(node, at=at)
    below = node.evaluate

    def evaluate(properties: Properties) -> bool | None:
        value = below(properties)
        return None if value is None else not value

    return _truth_node(evaluate, _depth_above(node, at=at))


def logical_and(nodes: list[Node], *, at: int) -> Node:
    """Make AND over any number of terms. It is false as soon as one term is."""
    terms = [node.evaluate for node in nodes]
    depth = _depth_above(*nodes, at=at)
    if len(terms) == 2:
        return _truth_node(_evaluate_and(*terms), depth)

    def evaluate(properties: Properties) -> bool | None:
        answer: bool | None = True
        for term in terms:
            value = term(properties)
            if value is False:
                return False
            if value is None:
                answer = None
        return answer

    return _truth_node(evaluate, depth)


def _evaluate_and(left: Evaluate, right: Evaluate) -> Truth:
    def evaluate(properties: Properties) -> bool | None:
        first = left(properties)
        if first is False:
            return False
        second = right(properties)
        if second is False:
            return False
        return None if first is None or second is None else True

    return evaluate


def logical_or(nodes: list[Node], *, at: int) -> Node:
    """Make OR over any number of terms. It is true as soon as one term is."""
    terms = [node.evaluate for node in nodes]

    def evaluate(properties: Properties) -> bool | None:
        answer: bool | None = False
        for term in terms:
            value = term(properties)
            if value is True:
                return True
            if value is None:
                answer = None
        return answer

    return _truth_node(evaluate, _depth_above(*nodes, at=at))


def _check_equal(left: Node, right: Node, at: int) -> None:
    is_literal = left.node_kind is right.node_kind is NodeKind.LITERAL
    if OperandKind.NOTHING in (left.operand_kind, right.operand_kind) and NodeKind.LITERAL in (
        left.node_kind,
        right.node_kind,
    ):
        for node in (left, right):
            if node.node_kind is NodeKind.LITERAL and node.operand_kind is OperandKind.NOTHING:
                raise FilterError(f"NULL at character {at + 1}: compare with IS NULL", at)
    if is_literal and left.operand_kind is OperandKind.TRUTH is not right.operand_kind:
        raise FilterError(f"TRUE or FALSE is compared with another kind at character {at + 1}", at)


def equals(left: Node, right: Node, *, at: int) -> Node:
    """Make `=`. A missing property gives null if it is on the left, and false if only the right one
    is missing."""
    _check_equal(left, right, at)
    depth = _depth_above(left, right, at=at)
    for one, other, missing in ((left, right, None), (right, left, False)):
        if one.node_kind is NodeKind.PROPERTY:
            name = str(one.value)
            if other.node_kind is NodeKind.LITERAL and other.operand_kind is OperandKind.TEXT:
                return _truth_node(_text_equals_evaluator(name, str(other.value), missing), depth)
            if other.is_number:
                assert isinstance(other.value, int | float)
                return _truth_node(
                    _number_comparison_evaluator(
                        name, operator.eq, other.value, other.operand_kind, missing
                    ),
                    depth,
                )
    return _truth_node(_equals_evaluator(left, right), depth)


def _text_equals_evaluator(name: str, wanted: str, missing: bool | None) -> Truth:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return missing if text is None else text == wanted

    return evaluate


def _equals_evaluator(left: Node, right: Node) -> Truth:
    first, second = left.evaluate, right.evaluate
    first_kind, second_kind = left.operand_kind, right.operand_kind

    # ComparisonExpression.doCreateEqual: two missing values are equal.
    def evaluate(properties: Properties) -> bool | None:
        one, other = first(properties), second(properties)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        return compare_values(one, first_kind, other, second_kind) == 0

    return evaluate


def _number_comparison_evaluator(
    name: str, holds: Holds, number: float, kind: OperandKind, missing: bool | None
) -> Truth:
    """Compare a property with a number, parsed as a number of the same kind."""
    if kind is OperandKind.DOUBLE:

        def evaluate(properties: Properties) -> bool | None:
            text = properties.get(name)
            if text is None:
                return missing
            return holds(compare_doubles(parse_java_double(text), number), 0)

        return evaluate
    digits = _DIGITS_SAFE[kind]

    def evaluate_whole(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return missing
        if len(text) < digits and text.isdecimal():
            return holds(int(text), number)
        return holds(parse_java_integer(text, kind), number)

    return evaluate_whole


def is_null(node: Node, *, at: int) -> Node:
    """Make IS NULL."""
    below = node.evaluate

    def evaluate(properties: Properties) -> bool:
        return below(properties) is None

    return _truth_node(evaluate, _depth_above(node, at=at))


def _check_order(node: Node, at: int) -> None:
    is_refused = node.node_kind is NodeKind.TRUTH or (
        node.node_kind is NodeKind.LITERAL and node.operand_kind not in NUMBERS
    )
    if is_refused:
        raise FilterError(
            f"only numbers and properties have an order: at character {at + 1} compare with "
            "= or <>, or write a number",
            at,
        )


def order_comparison(left: Node, symbol: str, right: Node, *, at: int) -> Node:
    """Make `>`, `>=`, `<` or `<=`; null if a side is missing."""
    _check_order(left, at)
    _check_order(right, at)
    depth = _depth_above(left, right, at=at)
    for one, other, table in ((left, right, _ORDERS), (right, left, _FLIPPED)):
        if one.node_kind is NodeKind.PROPERTY and other.is_number:
            assert isinstance(other.value, int | float)
            name = str(one.value)
            return _truth_node(
                _number_comparison_evaluator(
                    name, table[symbol], other.value, other.operand_kind, None
                ),
                depth,
            )
    return _truth_node(_order_evaluator(left, _ORDERS[symbol], right), depth)


def _order_evaluator(left: Node, holds: Holds, right: Node) -> Truth:
    first, second = left.evaluate, right.evaluate
    first_kind, second_kind = left.operand_kind, right.operand_kind

    def evaluate(properties: Properties) -> bool | None:
        one = first(properties)
        if one is None:
            return None
        other = second(properties)
        if other is None:
            return None
        if first_kind is second_kind is OperandKind.TEXT:
            return holds(
                compare_doubles(parse_java_double(str(one)), parse_java_double(str(other))), 0
            )
        return holds(compare_values(one, first_kind, other, second_kind), 0)

    return evaluate


def between(node: Node, low: Node, high: Node, *, at: int) -> Node:
    """Make BETWEEN. If both bounds are numbers, the lower must come first."""
    if low.node_kind is high.node_kind is NodeKind.LITERAL and low.is_number and high.is_number:
        assert low.value is not None
        assert high.value is not None
        if compare_values(high.value, high.operand_kind, low.value, low.operand_kind) < 0:
            raise FilterError(
                f"BETWEEN {low.value} AND {high.value} at character {at + 1}: "
                "the lower bound comes first",
                at,
            )
    bounds = [order_comparison(node, ">=", low, at=at), order_comparison(node, "<=", high, at=at)]
    return logical_and(bounds, at=at)


def not_between(node: Node, low: Node, high: Node, *, at: int) -> Node:
    """Make NOT BETWEEN; the bounds are not checked, as in RocketMQ."""
    return logical_or(
        [order_comparison(node, "<", low, at=at), order_comparison(node, ">", high, at=at)], at=at
    )


def in_list(node: Node, texts: list[str], *, is_not: bool, at: int) -> Node:
    """Make IN or NOT IN; null if the property is missing."""
    if node.node_kind is not NodeKind.PROPERTY:
        raise FilterError(f"IN needs a property in front of it, at character {at + 1}", at)
    name, wanted = str(node.value), frozenset(texts)

    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else (text in wanted) is not is_not

    return _truth_node(evaluate, _depth_above(node, at=at))


_SEARCHES: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def text_search(node: Node, word: str, text: str, *, is_not: bool, at: int) -> Node:
    """Make CONTAINS, STARTSWITH, ENDSWITH or their NOT forms."""
    found, below = _SEARCHES[word], node.evaluate

    # ComparisonExpression.ContainsExpression: a missing property or an empty text is false, not
    # nothing, also in the NOT form.
    def evaluate(properties: Properties) -> bool:
        if not text:
            return False
        value = below(properties)
        if not isinstance(value, str):
            return False
        return found(value, text) is not is_not

    return _truth_node(evaluate, _depth_above(node, at=at))


def to_predicate(node: Node) -> Truth:
    """Return the function that evaluates a whole expression. Where RocketMQ's evaluation throws for
    a message, so that the message does not match (ExpressionMessageFilter), the function returns
    None, as for a missing property."""
    root = node.evaluate

    def evaluate(properties: Properties) -> bool | None:
        try:
            value = root(properties)
        except IncomparableError:
            return None
        assert value is None or isinstance(value, bool)
        return value

    return evaluate
