"""Changes of zones, tables, users and grants as a sqlglot dialect: which statements there are.

Invariant: every statement is either one of our commands or an error; nothing is kept as opaque text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType

from catalog.core.errors import ErrorKind
from catalog.core.messages import (
    AlterZone,
    Command,
    CreateZone,
    DropTable,
    DropZone,
    OptionClause,
    RenameZone,
    SetDefaultZone,
)
from parser.principal_rules import PrincipalRules

OBJECTS = "ZONE, TABLE, USER or ROLE"
STATEMENTS = f"CREATE, ALTER or DROP of a {OBJECTS}, GRANT or REVOKE"

_OBJECTS = """
    INDEX VIEW SCHEMA DATABASE SEQUENCE FUNCTION PROCEDURE TRIGGER TYPE COLUMN UNIQUE
    TEMPORARY TEMP MATERIALIZED CACHE
"""
OTHER_OBJECTS = frozenset(_OBJECTS.split())
"""Objects that other SQL creates, alters and drops; refused as not supported rather than as misspelt."""

_STATEMENTS = """
    SELECT WITH VALUES TABLE EXPLAIN DESCRIBE INSERT UPDATE DELETE MERGE COPY CALL SET RESET
    USE PREPARE EXECUTE DEALLOCATE ANALYZE KILL
"""
OTHER_STATEMENTS = frozenset(_STATEMENTS.split())
"""First words of statements of other SQL."""

TRANSACTIONS = frozenset(["START", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT"])
"""First words of statements about transactions: DDL commits by itself, each statement."""


class CommandNode(exp.Expression):
    """``this`` is the command: sqlglot's cursor hands nodes around, ours hold nothing else."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class DialectRules(PrincipalRules):
    """The statements. A rule starts behind the statement's first word."""

    STATEMENT_PARSERS: ClassVar[dict[TokenType, Callable[[Any], exp.Expr]]] = {
        TokenType.CREATE: lambda self: CommandNode(this=self._create_statement()),
        TokenType.ALTER: lambda self: CommandNode(this=self._alter_statement()),
        TokenType.DROP: lambda self: CommandNode(this=self._drop_statement()),
    }

    def _parse_statement(self) -> exp.Expr | None:
        if not self._curr:
            return None
        if self.word() in TRANSACTIONS:
            message = f"{self.word()}: transactions are not supported, each statement commits on its own"
            self.refuse(ErrorKind.TRANSACTION_NOT_SUPPORTED, message, self._curr)
        if self.word() in OTHER_STATEMENTS:
            self._not_supported(self.word())
        if self.word() in ("GRANT", "REVOKE"):
            is_granted = self.word() == "GRANT"
            self._advance()
            return CommandNode(this=self.grant(is_granted=is_granted))
        rule = self.STATEMENT_PARSERS.get(self._curr.token_type)
        if rule is None:
            self.fail(STATEMENTS)
        self._advance()
        return rule(self)

    def _create_statement(self) -> Command:
        if self.word() == "OR":
            self._not_supported("CREATE OR REPLACE")
        what = self._object("CREATE")
        exists = self.take_word("IF") is not None
        if exists:
            self.expect_words("NOT", "EXISTS")
        if what == "TABLE":
            return self.create_table(exists)
        if what in ("USER", "ROLE"):
            return self.create_user(exists) if what == "USER" else self.create_role(exists)
        name = self.read_name()
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
        return CreateZone(name, tuple(options), exists, **self.origin())

    def _at_paren_after_profiles(self, options: list[OptionClause]) -> bool:
        return bool(options and self._curr) and self._curr.token_type == TokenType.L_PAREN

    def _alter_statement(self) -> Command:
        what = self._object("ALTER")
        if what == "ROLE":
            self._not_supported("ALTER ROLE")
        exists = self._if_exists()
        if what == "TABLE":
            return self.alter_table(exists)
        if what == "USER":
            return self.alter_user(exists)
        name = self.read_name()
        if self.take_word("RENAME"):
            self.expect_words("TO")
            new_name = self.read_name("a new zone name", compound=False)
            self.expect_end()
            return RenameZone(name, new_name, exists, **self.origin())
        if not self.take_word("SET"):
            self.fail("SET or RENAME TO")
        if self.take_word("DEFAULT"):
            self.expect_end(hint="SET DEFAULT stands alone")
            return SetDefaultZone(name, exists, **self.origin())
        return AlterZone(name, tuple(self._alter_options()), exists, **self.origin())

    def _alter_options(self) -> list[OptionClause]:
        if self._next and self._next.token_type == TokenType.EQ:
            options = self.old_form_options()
            self.expect_end('"," or the end of the statement', "this form is KEY=value, KEY=value")
        elif self.take(TokenType.L_PAREN):
            options = self.new_form_options()
            self.expect_end()
        else:
            options = self.new_form_option()
            self.expect_end(hint="several options are written in parentheses: SET (REPLICAS 3, QUORUM SIZE 2)")
        return options

    def _drop_statement(self) -> Command:
        what = self._object("DROP")
        is_table = what == "TABLE"
        exists = self._if_exists()
        if what in ("USER", "ROLE"):
            return self.drop_principal(what, exists)
        name = self.read_name("a table name" if is_table else "a zone name")
        self.expect_end()
        return DropTable(name, exists, **self.origin()) if is_table else DropZone(name, exists, **self.origin())

    def _if_exists(self) -> bool:
        if not self.take_word("IF"):
            return False
        self.expect_words("EXISTS")
        return True

    def _object(self, verb: str) -> str:
        """ZONE, TABLE, USER or ROLE, and moves behind it."""
        word = self.word()
        if word in OTHER_OBJECTS:
            self._not_supported(f"{verb} {word}")
        if word not in ("ZONE", "TABLE", "USER", "ROLE"):
            self.fail(OBJECTS)
        self.is_secret = word in ("USER", "ROLE")
        self._advance()
        return word

    def _not_supported(self, what: str) -> NoReturn:
        first = self._tokens[0]
        self.refuse(
            ErrorKind.STATEMENT_NOT_SUPPORTED, f"{what} is not supported here; supported: {STATEMENTS}", first
        )


class ZoneDdl(Dialect):
    """Registered with sqlglot under its own name; used through ``parser.to_command`` only, on the tokens of
    ``parser.script``."""

    Parser = DialectRules
