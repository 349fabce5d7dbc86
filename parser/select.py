"""SELECT and its kin: read in the dialect of SQL clients, checked, written for DuckDB.

Invariant: what comes out is one query over the relations that were resolved, and nothing else. Functions are
those of a list; no table function, no file, no setting, no other statement. The engine that runs it is locked
up besides (``app.sql.query.sandbox``): this is the first wall, and the one that explains itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.trino import Trino
from sqlglot.errors import ParseError as SqlglotParseError
from sqlglot.errors import SqlglotError
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.parsers.trino import TrinoParser
from sqlglot.tokenizer_core import Token

from catalog.core.errors import ErrorKind, ParseError
from catalog.core.messages import Position, shortened
from parser.queries import QueryName
from parser.query_values import Inner, TrinoColumn, column_type, exact, is_not_finite, trino_value, type_name
from parser.script import unclosed
from parser.text import SourceMap, check_characters

VERSION = "450-zonekeeper"
"""Answer of ``version()``. The number is the generation of the protocol: clients ask for it to know what they
may send."""

USER_NAME = "CURRENT_USER"
"""A column that the engine knows in every query: who asks."""

QUERY_CHARS_MAX = 100_000
QUERY_TOKENS_MAX = 10_000
NESTING_MAX = 100
"""Maximum depth of parentheses: the parser and DuckDB's binder recurse."""

_FUNCTIONS = """
    Abs AnyValue And Or Not Xor ApproxDistinct ArgMax ArgMin ArrayAgg ArrayContains ArraySize
    ArrayToString Array Avg Cast Ceil Case Chr Coalesce Concat ConcatWs Contains Count CountIf
    CurrentDate CurrentTimestamp Date DateAdd DateDiff DateSub DateTrunc TimestampTrunc TimestampAdd
    TimestampSub TimestampDiff DenseRank Exists Exp Extract FirstValue Floor Greatest GroupConcat
    Grouping If Initcap IsInf IsNan JSONExtract JSONExtractScalar JSONArrayLength Lag LastValue Lead
    Least Left Length Ln Log LogicalAnd LogicalOr Lower LTrim Max Median Min Mod NthValue Ntile Nullif
    PercentRank CumeDist PercentileCont PercentileDisc Pow Quantile Rank RegexpLike RegexpExtract Right
    Round RowNumber Sign Split SplitPart Sqrt StartsWith EndsWith Stddev StddevPop StddevSamp StrPosition
    StrToTime Substring Sum TimeToStr TimeToUnix Trim Trunc TryCast Typeof UnixToTime Upper Variance
    VariancePop Year Month Day Hour Minute Second Week Quarter DayOfWeek DayOfYear Localtimestamp
    CurrentTime Reverse ParseJSON ToChar Unnest Explode Struct Map VarMap ToMap Unhex CurrentUser
"""
ALLOWED_FUNCTIONS = frozenset(_FUNCTIONS.split())
ALLOWED_BY_NAME = frozenset({"CARDINALITY", "BOOL_AND", "BOOL_OR", "ISFINITE"})

_FORBIDDEN: tuple[type[Any], ...] = (
    *(exp.DDL, exp.DML, exp.Command, exp.Set, exp.Pragma, exp.Use, exp.Attach, exp.Detach, exp.Copy, exp.Into),
    *(exp.Lateral, exp.Parameter, exp.SessionParameter, exp.Placeholder, exp.Lock, exp.TableFromRows),
)


STEPS_PER_TOKEN_MAX = 30
STEPS_MORE_MAX = 2_000


READING_S = 0.5
READING_S_PER_TOKEN = 0.000_2
SUBSCRIPTS_MAX = 100
"""Maximum subscripts of one query, right behind another one: the type of what stands before is looked for again
for each."""


class TooManyStepsError(Exception):
    """The parser goes back and forth over the same words: the text is nested in a way that takes for ever."""


class ReadingBudget:
    """Budget of the processor's time that this thread may spend on a query of ``tokens`` words."""

    def __init__(self, tokens: int) -> None:
        self._until_s = time.thread_time() + READING_S + READING_S_PER_TOKEN * tokens

    def check(self) -> None:
        """Raises TooManyStepsError."""
        if time.thread_time() > self._until_s:
            raise TooManyStepsError


class _PlacedError(SqlglotParseError):
    def __init__(self, message: str, offset: int | None) -> None:
        super().__init__(message)
        self.offset = offset


class QueryDialect(Trino):
    """Dialect of the SQL clients, with the comments of zone DDL."""

    class Tokenizer(Trino.Tokenizer):
        COMMENTS: ClassVar = ["--", "//", ("/*", "*/")]
        NESTED_COMMENTS = False

    Tokenizer._COMMENTS.pop("{#", None)

    class Parser(TrinoParser):
        """Some nestings make the parser try each level again and again (ARRAY in ARRAY: four times as long for
        each level), so its steps are counted."""

        _steps = 0
        budget: ReadingBudget | None = None

        def _advance(self, times: int = 1) -> None:
            super()._advance(times)
            self._steps += 1
            if self.budget is not None:
                self.budget.check()
            if self._steps > STEPS_PER_TOKEN_MAX * self._tokens_size + STEPS_MORE_MAX:
                raise TooManyStepsError

        def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
            at = token or self._curr
            known = bool(at) and at.token_type.name != "SENTINEL"
            raise _PlacedError(message, at.start if known else None)

        def _warn_unsupported(self) -> None:
            """The text of a statement, which sqlglot would log, is its sender's."""


class _Generator(DuckDBGenerator):
    budget: ReadingBudget

    def sql(self, expression: str | exp.Expr | None, key: str | None = None, comment: bool = True) -> str:
        self.budget.check()
        return super().sql(expression, key, comment)


_DIALECT = QueryDialect()


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """``sql`` is DuckDB's, over ``relations``; ``places`` maps each name in the text, in lower case, to where
    it comes first, for errors that only name a thing. ``is_simple``: it takes no longer than reading what it
    names, once. ``text`` is the query as written."""

    sql: str
    relations: frozenset[str]
    places: dict[str, Position]
    is_simple: bool = False
    text: str = ""
    columns: tuple[TrinoColumn, ...] = ()
    """Columns, or a prefix of them: what the text says of them."""


NO_SESSION: Mapping[str, str] = {}
Resolve = Callable[[QueryName], str]
"""Resolver from a table's name to the name under which the engine will find it. Raises a coded error."""


def prepare_query(
    source: SourceMap, resolve: Resolve, session: Mapping[str, str] = NO_SESSION
) -> PreparedQuery:
    """Reads, checks, resolves and rewrites one query. ``session``: what CURRENT_SCHEMA and the like answer;
    empty: NULL. Raises ParseError."""
    check_characters(source)
    if len(source.text.strip()) > QUERY_CHARS_MAX:
        raise source.fail(0, f"a query has at most {QUERY_CHARS_MAX} characters", ErrorKind.QUERY_INVALID)
    try:
        tree, budget = _parse(source)
        rewriter = _Rewriter(source, resolve, session, budget)
        is_simple = _is_simple(tree)
        rewriter.rewrite(tree)
        sql = _named_values(tree, _written(tree, budget))
    except (RecursionError, TooManyStepsError) as error:
        raise source.fail(0, "the query is nested too deeply", ErrorKind.QUERY_INVALID) from error
    except SqlglotError as error:
        raise source.fail(0, "the query holds what cannot be run here", ErrorKind.QUERY_INVALID) from error
    return PreparedQuery(
        sql, frozenset(rewriter.relations), rewriter.places, is_simple, source.text, rewriter.columns
    )


def _is_simple(tree: exp.Expr) -> bool:
    """Neither rows for each row of something else nor rows out of nothing."""
    multiplies = tree.find(exp.Join, exp.With, exp.Unnest, exp.Explode, exp.Subquery, exp.Exists)
    return multiplies is None and len(list(tree.find_all(exp.Select))) <= 1


def _written(tree: exp.Expr, budget: ReadingBudget) -> str:
    generator = _Generator(dialect=DuckDB(), comments=False)
    generator.budget = budget
    return generator.generate(tree, copy=False)


def _parse(source: SourceMap) -> tuple[exp.Query | exp.Values, ReadingBudget]:
    try:
        tokens = _DIALECT.tokenize(source.text)
    except SqlglotError as error:
        raise unclosed(source) or source.fail(0, "the text cannot be read as SQL") from error
    _check_nesting(source, tokens)
    end = len(source.text)
    parser = QueryDialect.Parser(dialect=_DIALECT)
    parser.budget = budget = ReadingBudget(len(tokens))
    try:
        trees = parser.parse(tokens, source.text)
    except _PlacedError as error:
        offset = end if error.offset is None else error.offset
        words = (shortened(token.text) for token in tokens if token.start == error.offset)
        word = "the end of the statement" if error.offset is None else next(words, "this")
        raise source.fail(offset, f"{_plain(str(error))}, found {word}") from error
    except (SqlglotError, ValueError) as error:
        # Among them a size of a type that is a name without characters.
        raise source.fail(0, "the query cannot be read") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query | exp.Values):
        raise source.fail(0, "only SELECT, WITH and VALUES can be queried", ErrorKind.QUERY_NOT_ALLOWED)
    return trees[0], budget


def _check_nesting(source: SourceMap, tokens: list[Token]) -> None:
    """Check the nesting before anything recurses: the parser may run as native code, where too deep is a
    crash."""
    if len(tokens) > QUERY_TOKENS_MAX:
        message = f"a query has at most {QUERY_TOKENS_MAX} words, this one has {len(tokens)}"
        raise source.fail(tokens[0].start, message, ErrorKind.QUERY_INVALID)
    depth = 0
    run = subscripts = 0
    before = ""
    for token in tokens:
        subscripts += before == "]" and token.text == "["
        before = token.text
        if token.text in ("(", "["):
            depth += 1
        elif token.text in (")", "]"):
            depth -= 1
        # NOT NOT NOT ..., - - - ..., CASE in CASE: nesting without parentheses.
        run = run + 1 if token.text.upper() in ("NOT", "-", "+", "~", "CASE", "SELECT") else 0
        if depth > NESTING_MAX or run > NESTING_MAX or subscripts > SUBSCRIPTS_MAX:
            raise source.fail(token.start, "the query is nested too deeply", ErrorKind.QUERY_INVALID)


def _plain(message: str) -> str:
    """sqlglot's words without its class names."""
    first = message.split("\n", 1)[0].rstrip(".:")
    return "something is missing" if "<" in first else first[:1].lower() + first[1:]


class _Rewriter:
    """One walk over one tree."""

    def __init__(
        self, source: SourceMap, resolve: Resolve, session: Mapping[str, str], budget: ReadingBudget
    ) -> None:
        self.budget = budget
        self.relations: set[str] = set()
        self.places: dict[str, Position] = {}
        self._source = source
        self._resolve = resolve
        self._session = session
        self.columns: tuple[TrinoColumn, ...] = ()

    def rewrite(self, tree: exp.Query | exp.Values) -> None:
        for call in list(tree.find_all(exp.CurrentVersion)):
            call.replace(exp.Literal.string(VERSION))
        self._place_session(tree)
        nodes = list(tree.walk())
        for node in nodes:
            self._check(node)
        for node in nodes:
            if isinstance(node, exp.Identifier):
                self._fold(node)
        for node in nodes:
            if isinstance(node, exp.Table):
                self._bind(node)
            elif isinstance(node, exp.Column) and node.args.get("db"):
                node.set("catalog", None)
                node.set("db", None)
        self.columns = _name_columns(tree)
        for caller in list(tree.find_all(exp.CurrentUser)):
            caller.replace(exp.column(USER_NAME, quoted=True))
        for asked in list(tree.find_all(exp.Typeof)):
            asked.replace(type_name(asked))
        # From the inside out: what is put in the place of a node keeps what was put into it.
        for node in reversed(list(tree.walk())):
            self._make_exact(node)

    def _make_exact(self, node: exp.Expr) -> None:
        def refuse(blamed: exp.Expr, message: str) -> NoReturn:
            raise ParseError(ErrorKind.QUERY_INVALID, message, self._place(blamed))

        self.budget.check()
        written = exact(trino_value(node), refuse)
        if written is node:
            return
        inner = written.find(Inner)
        node.replace(written)
        if inner is not None:
            inner.replace(node)

    def _place_session(self, tree: exp.Expr) -> None:
        """Place what is asked of the session by a name without parentheses."""
        for node in list(tree.find_all(exp.Column, exp.CurrentCatalog, exp.CurrentSchema)):
            name = node.sql_name() if isinstance(node, exp.Func) else node.name.upper()
            is_quoted = isinstance(node, exp.Column) and (node.table or node.this.args.get("quoted"))
            if name in self._session and not is_quoted:
                text = self._session[name]
                node.replace(exp.Literal.string(text) if text else exp.Null())

    def _check(self, node: exp.Expr) -> None:
        if isinstance(node, _FORBIDDEN):
            self._refuse(node, f"{type(node).__name__.upper()} is not supported in a query")
        if isinstance(node, exp.CTE) and not isinstance(node.this, exp.Query | exp.Values):
            self._refuse(node, "WITH accepts queries only")
        if isinstance(node, exp.Anonymous):
            if node.name.upper() not in ALLOWED_BY_NAME and not is_not_finite(node):
                self._refuse(node, f"the function {shortened(node.name)} is not available")
        elif isinstance(node, exp.Func) and type(node).__name__ not in ALLOWED_FUNCTIONS:
            self._refuse(node, f"the function {node.sql_names()[0]} is not available")

    def _fold(self, node: exp.Identifier) -> None:
        """Unquoted names are upper-cased; every name's first place is kept."""
        offset = node.meta.get("start")
        if offset is not None:
            key = str(node.this).lower()
            place = self._source.position(int(offset))
            known = self.places.get(key)
            if known is None or (place.line, place.column) < (known.line, known.column):
                self.places[key] = place
        if not node.args.get("quoted"):
            # The fields of a row have the names that clients know, in lower case; both cases find them.
            is_field = isinstance(node.parent, exp.ColumnDef)
            node.set("this", str(node.this).lower() if is_field else str(node.this).upper())

    def _bind(self, node: exp.Table) -> None:
        parts = node.parts
        if not parts or not all(isinstance(part, exp.Identifier) for part in parts):
            self._refuse(node, "only views and tables can be queried, not table functions")
        self.budget.check()
        names = tuple(str(part.this) for part in parts)
        if len(names) == 1 and names[0] in _visible_ctes(node):
            return
        relation = self._resolve(QueryName(names, self._place(parts[0])))
        self.relations.add(relation)
        if not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(names[-1], quoted=True)))
        node.set("this", exp.to_identifier(relation, quoted=True))
        node.set("db", None)
        node.set("catalog", None)

    def _refuse(self, node: exp.Expr, message: str) -> NoReturn:
        raise ParseError(ErrorKind.QUERY_NOT_ALLOWED, message, self._place(node))

    def _place(self, node: exp.Expr) -> Position:
        """Return where the first token of the node is that sqlglot kept a place of."""
        text = self._source.text
        offsets = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        return self._source.position(min(offsets) if offsets else len(text) - len(text.lstrip()))


def _visible_ctes(node: exp.Expr) -> set[str]:
    """Names that a WITH around ``node`` gives it: those before it, in a recursive one also its own."""
    names: set[str] = set()
    child: exp.Expr = node
    parent = node.parent
    while parent is not None:
        if isinstance(parent, exp.With):
            for cte in parent.expressions:
                if cte is child:
                    if parent.args.get("recursive"):
                        names.add(cte.alias)
                    break
                names.add(cte.alias)
        else:
            around = parent.args.get("with_")
            if around is not None and around is not child:
                names.update(cte.alias for cte in around.expressions)
        child, parent = parent, parent.parent
    return names


def _name_columns(tree: exp.Expr) -> tuple[TrinoColumn, ...]:
    """Give columns without a name one that tells their place, as Trino names them. What is known of the columns
    up to the first star."""
    first: exp.Expr = tree
    while isinstance(first, exp.SetOperation | exp.Subquery):
        first = first.this
    if not isinstance(first, exp.Select):
        return ()
    known: list[TrinoColumn] = []
    for projection in first.expressions:
        if projection.is_star:
            break
        known.append(column_type(projection))
    named = (
        projection
        if projection.is_star or isinstance(projection, exp.Alias | exp.Column | exp.Dot)
        else exp.alias_(projection, f"_COL{index}", quoted=True, copy=False)
        for index, projection in enumerate(first.expressions)
    )
    # All at once: each replacement would go through all of them.
    first.set("expressions", list(named))
    return tuple(known) if first is tree else ()


def _named_values(tree: exp.Expr, sql: str) -> str:
    if not isinstance(tree, exp.Values) or tree.alias:
        return sql
    rows = tree.expressions
    count = len(rows[0].expressions) if rows and isinstance(rows[0], exp.Tuple) else 1
    names = ", ".join(f'"_COL{index}"' for index in range(count))
    return f"SELECT * FROM ({sql}) AS v({names})"
