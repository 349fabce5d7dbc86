"""The filter language: JSONPath as the Java library json-path (Jayway, 2.10) reads it, on python-jsonpath.

Differences from python-jsonpath that matter to a map of attributes, each seen in ``tests/data``:

- a predicate ``[?(...)]`` on a map tests the map itself, not its values (as if over a list of that one map);
- a comparison with an attribute that is not there is false, so ``!=``, ``!==`` and ``nin`` with it are true;
- a number equals a string that reads as the same number; ``<`` and its kin never mix the two;
- ``nin``, ``===``, ``!==``, ``size``, ``empty``, ``subsetof``, ``anyof``, ``noneof`` and ``all`` exist;
  functions, unions and python-jsonpath's other extensions do not; a predicate is always in parentheses.

Regular expressions are RE2's: the time of a match grows with the text only, whatever the pattern. What RE2 does
not know (look-around, back references) is not a filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import re2
from jsonpath import JSONPathEnvironment
from jsonpath.exceptions import JSONPathSyntaxError
from jsonpath.filter import (
    BaseExpression,
    FilterExpression,
    FilterQuery,
    InfixExpression,
    IntegerLiteral,
    PrefixExpression,
    RegexLiteral,
)
from jsonpath.lex import Lexer
from jsonpath.match import JSONPathMatch, NodeList
from jsonpath.parse import Parser
from jsonpath.selectors import Filter, FilterContext
from jsonpath.stream import TokenStream
from jsonpath.token import (
    TOKEN_DDOT,
    TOKEN_DOT,
    TOKEN_LBRACKET,
    TOKEN_LPAREN,
    TOKEN_NAME,
    TOKEN_NOT,
    TOKEN_RBRACKET,
    TOKEN_RE_FLAGS,
    TOKEN_ROOT,
    TOKEN_RPAREN,
    TOKEN_WHITESPACE,
    TOKEN_WILD,
    Token,
)

NESTING_MAX = 32
NEGATIVE = frozenset({"!=", "!==", "nin"})
LOGICAL = frozenset({"&&", "||"})

_WORD_OPERATORS = ("in", "nin", "contains", "size", "empty", "subsetof", "anyof", "noneof", "all")
_SIGN_OPERATORS = ("===", "!==", "==", "!=", "<=", ">=", "=~", "<", ">")
_COMPARISON = {f"TOKEN_COMPARE_{n}": op for n, op in enumerate((*_SIGN_OPERATORS, *_WORD_OPERATORS))}


class SuppressedError(Exception):
    """The Java library would throw while evaluating, and be told to keep silent: nothing matches."""


class Missing:
    """The value of an attribute that is not there: equal to nothing, not even to itself."""


MISSING = Missing()


class FilterLexer(Lexer):
    """Lexer of the tokens that the Java library has."""

    def compile_rules(self) -> re.Pattern[str]:
        key = r"[\w\u0080-\uFFFF-]+"
        rules = [
            ("TOKEN_DOUBLE_QUOTE_STRING", self.double_quote_pattern),
            ("TOKEN_SINGLE_QUOTE_STRING", self.single_quote_pattern),
            ("TOKEN_RE_PATTERN", r"/(?P<G_RE>(?:[^/\\]|\\.)*)/(?P<G_RE_FLAGS>[a-zA-Z]*)"),
            ("TOKEN_DOT_PROPERTY", rf"(?P<G_DOT>\.)(?P<G_PROP>{key})"),
            ("TOKEN_FLOAT", r"-?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)"),
            ("TOKEN_INT", r"-?[0-9]+"),
            ("TOKEN_DDOT", r"\.\."),
            ("TOKEN_DOT", r"\."),
            ("TOKEN_AND", "&&"),
            ("TOKEN_OR", r"\|\|"),
            ("TOKEN_ROOT", r"\$"),
            ("TOKEN_SELF", "@"),
            ("TOKEN_WILD", r"\*"),
            ("TOKEN_FILTER", r"\?"),
            ("TOKEN_TRUE", r"true\b"),
            ("TOKEN_FALSE", r"false\b"),
            ("TOKEN_NULL", r"null\b"),
            *((kind, _operator_pattern(operator)) for kind, operator in _COMPARISON.items()),
            ("TOKEN_NOT", "!"),
            ("TOKEN_NAME", key),
            ("TOKEN_LBRACKET", r"\["),
            ("TOKEN_RBRACKET", r"\]"),
            ("TOKEN_COMMA", ","),
            ("TOKEN_COLON", ":"),
            ("TOKEN_LPAREN", r"\("),
            ("TOKEN_RPAREN", r"\)"),
            ("TOKEN_WHITESPACE", r"[ \n\t\r]+"),
            ("TOKEN_ERROR", "."),
        ]
        return re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in rules), re.DOTALL)

    def tokenize(self, path: str) -> Iterator[Token]:
        """Tokenize; also refuses what the parser would take: names and blanks where the Java library has
        none."""
        before: Token | None = None
        depth = nesting = 0
        for token in super().tokenize(path):
            kind = token.kind
            depth += (kind in (TOKEN_LBRACKET, TOKEN_LPAREN)) - (kind in (TOKEN_RBRACKET, TOKEN_RPAREN))
            nesting += kind == TOKEN_NOT
            if depth + nesting > NESTING_MAX:
                raise JSONPathSyntaxError(f"nested deeper than {NESTING_MAX}", token=token)
            after = before.kind if before else ""
            misplaced = (
                (kind == TOKEN_NAME and after not in (TOKEN_DOT, TOKEN_DDOT))
                or (kind == TOKEN_WILD and after not in (TOKEN_DOT, TOKEN_DDOT, TOKEN_LBRACKET))
                or (kind == TOKEN_WHITESPACE and depth == 0)
                or (kind == TOKEN_ROOT and depth == 0 and before is not None)
            )
            if misplaced:
                raise JSONPathSyntaxError(f"unexpected {token.value!r}", token=token)
            yield token
            before = token


def _operator_pattern(operator: str) -> str:
    return rf"(?i:{operator})\b" if operator.isalpha() else re.escape(operator)


class MapFilter(Filter):
    """A predicate that tests a map itself."""

    __slots__ = ()

    def resolve(self, node: JSONPathMatch) -> Iterable[JSONPathMatch]:
        if not isinstance(node.obj, Mapping):
            yield from super().resolve(node)
            return
        context = FilterContext(env=self.env, current=node.obj, root=node.root)
        if self.expression.evaluate(context):
            yield node


class FilterParser(Parser):
    """Expressions as the Java library has them: operands are values, only tests are joined and negated."""

    PRECEDENCES = {  # noqa: RUF012
        **dict.fromkeys(_COMPARISON, Parser.PRECEDENCE_RELATIONAL),
        "TOKEN_AND": Parser.PRECEDENCE_LOGICAL_AND,
        "TOKEN_OR": Parser.PRECEDENCE_LOGICAL_OR,
        TOKEN_NOT: Parser.PRECEDENCE_PREFIX,
        TOKEN_RPAREN: Parser.PRECEDENCE_LOWEST,
    }
    BINARY_OPERATORS = {  # noqa: RUF012
        **_COMPARISON,
        "TOKEN_AND": "&&",
        "TOKEN_OR": "||",
    }
    COMPARISON_OPERATORS = frozenset(_COMPARISON.values())
    INFIX_LITERAL_OPERATORS = COMPARISON_OPERATORS

    def parse_filter_selector(self, stream: TokenStream, *, keys: bool = False) -> Filter:
        token = stream.next()
        stream.skip_whitespace()
        stream.eat(TOKEN_LPAREN, 'expected "(" behind "?"')
        expression = self.parse_filter_expression(stream)
        stream.skip_whitespace()
        stream.eat(TOKEN_RPAREN, 'expected ")"')
        _require_test(expression, token)
        return MapFilter(env=self.env, token=token, expression=FilterExpression(expression))

    def parse_infix_expression(self, stream: TokenStream, left: BaseExpression) -> BaseExpression:
        token = stream.current()
        parsed = super().parse_infix_expression(stream, left)
        assert isinstance(parsed, InfixExpression)
        operands = (parsed.left, parsed.right)
        if parsed.operator in LOGICAL:
            for operand in operands:
                _require_test(operand, token)
        elif any(isinstance(operand, InfixExpression | PrefixExpression) for operand in operands):
            raise JSONPathSyntaxError(f"{parsed.operator} compares values, not tests", token=token)
        elif parsed.operator != "=~" and any(isinstance(operand, RegexLiteral) for operand in operands):
            raise JSONPathSyntaxError("a regular expression stands behind =~ only", token=token)
        return parsed

    def parse_prefix_expression(self, stream: TokenStream) -> BaseExpression:
        token = stream.current()
        parsed = super().parse_prefix_expression(stream)
        assert isinstance(parsed, PrefixExpression)
        _require_test(parsed.right, token)
        return parsed

    def parse_integer_literal(self, stream: TokenStream) -> BaseExpression:
        """Exact, and without ever writing out a huge exponent."""
        token = stream.next()
        try:
            # The literal's class only carries the value; Decimal compares with int and with itself.
            return IntegerLiteral(value=Decimal(token.value))  # type: ignore[arg-type]
        except InvalidOperation as error:
            raise JSONPathSyntaxError(f"{token.value} is not a number", token=token) from error

    parse_float_literal = parse_integer_literal

    def parse_regex(self, stream: TokenStream) -> BaseExpression:
        token = stream.next()
        flags = stream.eat(TOKEN_RE_FLAGS).value
        if set(flags) - set("imsduU"):
            raise JSONPathSyntaxError(f"unknown flags of a regular expression: {flags}", token=token)
        used = "".join(flag for flag in "ims" if flag in flags)
        options = re2.Options()
        options.log_errors = False
        try:
            pattern = re2.compile((f"(?{used})" if used else "") + token.value.replace(r"\/", "/"), options)
        except re2.error as error:
            reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
            raise JSONPathSyntaxError(f"/{token.value}/ cannot be used: {reason}", token=token) from error
        return RegexLiteral(value=pattern)


def _require_test(expression: BaseExpression, token: Token) -> None:
    if not isinstance(expression, InfixExpression | PrefixExpression | FilterQuery):
        raise JSONPathSyntaxError("a value alone is not a test: compare it", token=token)


class FilterEnvironment(JSONPathEnvironment):
    """python-jsonpath with the language above."""

    lexer_class = FilterLexer
    parser_class = FilterParser

    def __init__(self) -> None:
        super().__init__(filter_caching=False, well_typed=False)

    def setup_function_extensions(self) -> None:
        """Register no functions: the Java library's work on arrays, and on a map of attributes they only
        fail."""

    def compare(self, left: object, operator: str, right: object) -> bool:
        if operator == "&&":
            return self.is_truthy(left) and self.is_truthy(right)
        if operator == "||":
            return self.is_truthy(left) or self.is_truthy(right)
        left, right = _value(left), _value(right)
        if operator in ("==", "==="):
            return _equal(left, right) and (operator == "==" or _kind(left) == _kind(right))
        if operator in ("!=", "!=="):
            return not self.compare(left, "==" if operator == "!=" else "===", right)
        if operator in ("<", ">", "<=", ">="):
            return _ordered(left, operator, right)
        if operator in ("in", "nin"):
            is_listed = any(_equal(left, item) for item in _list(right))
            return is_listed == (operator == "in")
        return _OTHER_OPERATORS[operator](left, right)


def _value(operand: object) -> object:
    if isinstance(operand, NodeList):
        return operand.values() if operand else MISSING
    return operand


def _kind(value: object) -> str:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def _equal(left: object, right: object) -> bool:
    if left is MISSING or right is MISSING:
        return False
    kinds = _kind(left), _kind(right)
    if kinds == ("number", "str"):
        return left == _number(str(right))
    if kinds == ("str", "number"):
        return left == str(right)
    return kinds[0] == kinds[1] and left == right


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text) if text.isascii() and "_" not in text else None
    except InvalidOperation:
        return None


def _ordered(left: Any, operator: str, right: Any) -> bool:
    if _kind(left) != _kind(right) or _kind(left) not in ("number", "str"):
        return False
    return bool(
        (operator == "<" and left < right)
        or (operator == ">" and left > right)
        or (operator == "<=" and left <= right)
        or (operator == ">=" and left >= right)
    )


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise SuppressedError("a list is expected")
    return value


def _matches(left: object, right: object) -> bool:
    """``=~``: the whole text; numbers count as their text."""
    pattern, subject = (right, left) if hasattr(right, "fullmatch") else (left, right)
    if not hasattr(pattern, "fullmatch") or _kind(subject) not in ("number", "str"):
        return False
    return pattern.fullmatch(str(subject)) is not None


def _contains(left: object, right: object) -> bool:
    return isinstance(left, str) and isinstance(right, str) and right in left


def _size(left: object, right: object) -> bool:
    return isinstance(left, str | list) and _kind(right) == "number" and len(left) == right


def _empty(left: object, right: object) -> bool:
    return isinstance(left, str | list) and isinstance(right, bool) and (not left) == right


_OTHER_OPERATORS = {
    "=~": _matches,
    "contains": _contains,
    "size": _size,
    "empty": _empty,
    # Operators on lists: an attribute is none.
    **dict.fromkeys(("subsetof", "anyof", "noneof", "all"), lambda *_: False),
}
