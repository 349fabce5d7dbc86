"""Zone DDL as a sqlglot dialect: how text becomes tokens, and which statements there are.

Invariant: every statement is either one of the three nodes below or an error; nothing is kept as opaque text.
Keywords are few on purpose: all other words stay plain words, so that an option's name can also name a zone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType
from sqlglot.tokens import Tokenizer

from catalog.core.errors import ErrorKind
from catalog.core.messages import OptionClause
from parser.options import OptionRules

STATEMENTS = "CREATE ZONE, ALTER ZONE or DROP ZONE"

_OBJECTS = """
    TABLE INDEX VIEW SCHEMA DATABASE SEQUENCE USER ROLE FUNCTION PROCEDURE TRIGGER TYPE COLUMN UNIQUE
    TEMPORARY TEMP MATERIALIZED CACHE
"""
OTHER_OBJECTS = frozenset(_OBJECTS.split())
"""What other SQL creates, alters and drops; refused as not supported rather than as misspelt."""

_STATEMENTS = """
    SELECT WITH VALUES TABLE EXPLAIN DESCRIBE INSERT UPDATE DELETE MERGE COPY CALL SET RESET
    USE GRANT REVOKE
    START BEGIN COMMIT ROLLBACK SAVEPOINT PREPARE EXECUTE DEALLOCATE ANALYZE KILL
"""
OTHER_STATEMENTS = frozenset(_STATEMENTS.split())
"""First words of statements of other SQL."""


class CreateZoneNode(exp.Expression):
    """``this`` is a ``ZoneName``, ``options`` are ``OptionClause``; ``start`` and ``end`` are offsets."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True, "options": False, "exists": False, "start": True, "end": True,
    }  # fmt: skip


class AlterZoneNode(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = CreateZoneNode.arg_types


class DropZoneNode(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = CreateZoneNode.arg_types


class ZoneRules(OptionRules):
    """The statements. A rule starts behind the statement's first word."""

    STATEMENT_PARSERS: ClassVar[dict[TokenType, Callable[[Any], exp.Expr]]] = {
        TokenType.CREATE: lambda self: self._create_statement(),
        TokenType.ALTER: lambda self: self._alter_statement(),
        TokenType.DROP: lambda self: self._drop_statement(),
        TokenType.SEMICOLON: lambda self: exp.Semicolon(),
    }

    def _parse_statement(self) -> exp.Expr | None:
        if not self._curr:
            return None
        if self.word() in OTHER_STATEMENTS:
            self._not_supported(self.word())
        rule = self.STATEMENT_PARSERS.get(self._curr.token_type)
        if rule is None:
            self.fail(STATEMENTS)
        self._advance()
        return rule(self)

    def _create_statement(self) -> exp.Expr:
        start = self._prev.start
        if self.word() == "OR":
            self._not_supported("CREATE OR REPLACE")
        self._expect_zone("CREATE")
        exists = self.take_word("IF") is not None
        if exists:
            self.expect_words("NOT", "EXISTS")
        name = self.zone_name()
        options: list[OptionClause] = []
        if self.take_word("WITH"):
            options = self.old_form_options()
            self.expect_end('"," or the end of the statement')
        else:
            expected = '"(", STORAGE PROFILES, WITH or the end of the statement'
            if self.take(TokenType.L_PAREN):
                options = self.new_form_options()
                expected = "STORAGE PROFILES or the end of the statement"
            if self.word() == "STORAGE":
                options.append(self.storage_profiles())
                expected = "the end of the statement"
            hint = "options come before STORAGE PROFILES" if self._at_paren_after_profiles(options) else ""
            self.expect_end(expected, hint)
        return CreateZoneNode(
            this=name, options=tuple(options), exists=exists, start=start, end=self._prev.end + 1
        )

    def _at_paren_after_profiles(self, options: list[OptionClause]) -> bool:
        return bool(options and self._curr) and self._curr.token_type == TokenType.L_PAREN

    def _alter_statement(self) -> exp.Expr:
        start = self._prev.start
        self._expect_zone("ALTER")
        exists = self._if_exists()
        name = self.zone_name()
        if self.word() == "RENAME":
            self._rename()
        if not self.take_word("SET"):
            self.fail("SET or RENAME TO")
        if self.word() == "DEFAULT":
            self._set_default()
        if self._next and self._next.token_type == TokenType.EQ:
            options = self.old_form_options()
            self.expect_end('"," or the end of the statement', "this form is KEY=value, KEY=value")
        elif self.take(TokenType.L_PAREN):
            options = self.new_form_options()
            self.expect_end()
        else:
            options = self.new_form_option()
            self.expect_end(hint="several options are written in parentheses: SET (REPLICAS 3, QUORUM SIZE 2)")
        return AlterZoneNode(
            this=name, options=tuple(options), exists=exists, start=start, end=self._prev.end + 1
        )

    def _rename(self) -> NoReturn:
        token = self._curr
        self.expect_words("RENAME", "TO")
        self.zone_name("a new zone name", compound=False)
        self.expect_end()
        self.refuse(ErrorKind.STATEMENT_NOT_SUPPORTED, "ALTER ZONE ... RENAME TO is not supported yet", token)

    def _set_default(self) -> NoReturn:
        token = self._curr
        self.expect_words("DEFAULT")
        self.expect_end()
        self.refuse(ErrorKind.STATEMENT_NOT_SUPPORTED, "ALTER ZONE ... SET DEFAULT is not supported yet", token)

    def _drop_statement(self) -> exp.Expr:
        start = self._prev.start
        self._expect_zone("DROP")
        exists = self._if_exists()
        name = self.zone_name()
        self.expect_end()
        return DropZoneNode(this=name, exists=exists, start=start, end=self._prev.end + 1)

    def _if_exists(self) -> bool:
        if not self.take_word("IF"):
            return False
        self.expect_words("EXISTS")
        return True

    def _expect_zone(self, verb: str) -> None:
        if self.word() in OTHER_OBJECTS:
            self._not_supported(f"{verb} {self.word()}")
        self.expect_words("ZONE")

    def _not_supported(self, what: str) -> NoReturn:
        first = self._tokens[0]
        self.refuse(
            ErrorKind.STATEMENT_NOT_SUPPORTED, f"{what} is not supported; supported: {STATEMENTS}", first
        )


class ZoneDdl(Dialect):
    """Registered with sqlglot under its own name; used through ``parser.to_command`` only."""

    class Tokenizer(Tokenizer):
        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ['"']
        COMMENTS: ClassVar = ["--", "//", ("/*", "*/")]
        NESTED_COMMENTS = False
        COMMANDS: ClassVar = set()
        # A hint would be a comment that changes meaning; making it a token everywhere refuses it.
        TOKENS_PRECEDING_HINT: ClassVar = set(TokenType)
        KEYWORDS: ClassVar = {
            "CREATE": TokenType.CREATE,
            "ALTER": TokenType.ALTER,
            "DROP": TokenType.DROP,
            Tokenizer.HINT_START: TokenType.HINT,
        }

    # sqlglot reads template comments in every dialect; SQL has none.
    Tokenizer._COMMENTS.pop("{#")

    Parser = ZoneRules
