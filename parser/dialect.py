"""Changes of zones, tables, users and grants as a sqlglot dialect: which statements there are.

Invariant: every statement is either one of our commands or an error; nothing is kept as opaque text.

Users, roles and grants, in CockroachDB's words::

    CREATE USER [IF NOT EXISTS] name [[WITH] { PASSWORD 'secret' | PASSWORD NULL | LOGIN | NOLOGIN } ...]
    ALTER USER [IF EXISTS] name [WITH] { PASSWORD 'secret' | PASSWORD NULL | LOGIN | NOLOGIN } ...
    CREATE ROLE [IF NOT EXISTS] name
    DROP USER | ROLE [IF EXISTS] name
    GRANT privilege [, ...] ON { SYSTEM | ALL ZONES | ZONE zone } TO user_or_role [, ...]
    GRANT role [, ...] TO user [, ...]
    REVOKE ... FROM ..., as GRANT

No message repeats anything of a statement on users: what stands in a wrong place may be the password.

Tables, as far as a zone catalog needs them: ``CREATE TABLE name (column type ..., PRIMARY KEY (a, b)) [COLOCATE
[BY] (a)] [ZONE name] [STORAGE PROFILE 'p']``, in that order. Types are read by name and checked later;
constraints other than the primary key, NOT NULL and a literal DEFAULT are not part of the grammar.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType

from catalog.core.errors import ErrorKind
from catalog.core.messages import (
    AddColumns,
    AlterUser,
    AlterZone,
    ChangeGrants,
    ChangeMembers,
    ColumnClause,
    ColumnType,
    Command,
    CreateRole,
    CreateTable,
    CreateUser,
    CreateZone,
    DropColumns,
    DropRole,
    DropTable,
    DropUser,
    DropZone,
    GrantTarget,
    Name,
    OptionClause,
    ProfileName,
    RenameZone,
    Secret,
    SetDefaultZone,
    shortened,
)
from parser.hidden_secrets import hide_secrets
from parser.rules import DATED_LITERALS, NUMBER, RESERVED, OptionRules
from parser.text import quoted

TYPE_ALIASES = {
    "INT": "INTEGER",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "CHARACTER": "CHAR",
    "CHARACTER VARYING": "VARCHAR",
    "CHAR VARYING": "VARCHAR",
    "BINARY VARYING": "VARBINARY",
    "DOUBLE PRECISION": "DOUBLE",
}
_SECOND_WORDS = {"DOUBLE": "PRECISION", "CHAR": "VARYING", "CHARACTER": "VARYING", "BINARY": "VARYING"}
_DEFAULT_FUNCTIONS = frozenset({"CURRENT_DATE", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "RAND_UUID"})
TYPE_ARGUMENTS_MAX = 8


class TableRules(OptionRules):
    """Rules for tables. A rule starts at its first token and ends behind its last one."""

    def create_table(self, exists: bool) -> Command:
        """Read what is behind ``CREATE TABLE [IF NOT EXISTS]``."""
        name = self.read_name("a table name")
        columns: list[ColumnClause] = []
        keys: list[tuple[Name, ...]] = []
        self.need(TokenType.L_PAREN, '"("')
        self.several(lambda: self.read_table_element(columns, keys))
        self.need(TokenType.R_PAREN, '"," or ")"')
        colocation = zone = profile = None
        expected = "COLOCATE, ZONE, STORAGE PROFILE or the end of the statement"
        if self.take_word("COLOCATE"):
            self.take_word("BY")
            colocation = self.read_names("a column name")
            expected = "ZONE, STORAGE PROFILE or the end of the statement"
        if self.take_word("ZONE"):
            zone = self.read_name(compound=False)
            expected = "STORAGE PROFILE or the end of the statement"
        if self.take_word("STORAGE"):
            self.expect_words("PROFILE")
            token = self.need(TokenType.STRING, "a storage profile in single quotes")
            profile = ProfileName(token.text.strip(), self.place(token))
            expected = "the end of the statement"
        order = "the order is COLOCATE, ZONE, STORAGE PROFILE"
        misplaced = self.word() in ("COLOCATE", "ZONE", "STORAGE")
        self.expect_end(expected, order if misplaced else "")
        parts = name, tuple(columns), tuple(keys), colocation, zone, profile, exists
        return CreateTable(*parts, **self.origin())

    def alter_table(self, exists: bool) -> Command:
        """Read what is behind ``ALTER TABLE [IF EXISTS]``: ADD or DROP of columns, in parentheses or one."""
        name = self.read_name("a table name")
        if self.take_word("ADD"):
            self.take_word("COLUMN")
            if self.take(TokenType.L_PAREN):
                columns = self.several(lambda: self.read_column(None))
                self.need(TokenType.R_PAREN, '"," or ")"')
            else:
                columns = [self.read_column(None)]
            self.expect_end(hint="several columns are written in parentheses")
            return AddColumns(name, tuple(columns), exists, **self.origin())
        if not self.take_word("DROP"):
            self.fail("ADD or DROP of columns")
        self.take_word("COLUMN")
        if self._curr and self._curr.token_type == TokenType.L_PAREN:
            names = self.read_names("a column name")
        else:
            names = (self.read_name("a column name", compound=False),)
        self.expect_end(hint="several columns are written in parentheses")
        return DropColumns(name, names, exists, **self.origin())

    def read_table_element(self, columns: list[ColumnClause], keys: list[tuple[Name, ...]]) -> None:
        """A column or a PRIMARY KEY; PRIMARY is reserved, so no column is called that."""
        if self.take_word("CONSTRAINT"):
            self.read_name("a constraint name", compound=False)
            if self.word() != "PRIMARY":
                self.fail("PRIMARY KEY", "no other constraint is supported")
        if self.take_word("PRIMARY"):
            self.expect_words("KEY")
            keys.append(self.read_names("a column name"))
            return
        columns.append(self.read_column(keys))

    def read_column(self, keys: list[tuple[Name, ...]] | None) -> ColumnClause:
        """``name type [NOT NULL | NULL] [DEFAULT literal] [PRIMARY KEY]``; no key where ``keys`` is None."""
        name = self.read_name("a column name", compound=False)
        column_type = self.read_type()
        nullable, default = True, None
        seen: set[str] = set()
        while self.word() in ("NOT", "NULL", "DEFAULT", "PRIMARY"):
            word = self.word()
            if word in seen or (word in ("NOT", "NULL") and seen & {"NOT", "NULL"}):
                self.fail('"," or ")"', f"{word} is given twice" if word in seen else "NULL or NOT NULL")
            if word == "PRIMARY" and keys is None:
                self.fail('"," or ")"', "a primary key is fixed when a table is created")
            seen.add(word)
            self._advance()
            if word == "NOT":
                self.expect_words("NULL")
                nullable = False
            elif word == "DEFAULT":
                default = self.read_default()
            elif word == "PRIMARY":
                self.expect_words("KEY")
                if keys is not None:
                    keys.append((name,))
        return ColumnClause(name, column_type, nullable, default)

    def read_type(self) -> ColumnType:
        token = self._curr
        word = self.word()
        if not word.isidentifier() or word in RESERVED:
            self.fail("a type")
        self._advance()
        if self.word() and self.word() == _SECOND_WORDS.get(word):
            word = f"{word} {self.word()}"
            self._advance()
        arguments: list[int] = []
        written: list[str] = []
        if self.take(TokenType.L_PAREN):
            arguments.append(self.digits("the type"))
            written.append(self._prev.text)
            while len(arguments) < TYPE_ARGUMENTS_MAX and self.take(TokenType.COMMA):
                arguments.append(self.digits("the type"))
                written.append(self._prev.text)
            self.need(TokenType.R_PAREN, '"," or ")"')
        if word in ("TIME", "TIMESTAMP") and self.word() in ("WITH", "WITHOUT"):
            local = self.word() == "WITH"
            self.expect_words(*(("WITH", "LOCAL") if local else ("WITHOUT",)), "TIME", "ZONE")
            word = f"{word} WITH LOCAL TIME ZONE" if local else word
        return ColumnType(TYPE_ALIASES.get(word, word), tuple(arguments), tuple(written), self.place(token))

    def read_default(self) -> str:
        """A literal or one of a few functions, as SQL writes it."""
        word = self.word()
        if word in ("TRUE", "FALSE", "NULL") or word in _DEFAULT_FUNCTIONS:
            self._advance()
            return word
        if word in DATED_LITERALS and word != "INTERVAL":
            self._advance()
            return f"{word} {quoted(self.need(TokenType.STRING, 'a single-quoted string').text)}"
        string = self.take(TokenType.STRING)
        if string:
            return quoted(string.text)
        sign = "-" if self.take(TokenType.DASH) else ""
        number = self.need(TokenType.NUMBER, "a literal")
        if not NUMBER.fullmatch(number.text):
            self.refuse(ErrorKind.SYNTAX_ERROR, f"{shortened(number.text)} is not a number", number)
        return sign + number.text

    def read_names(self, what: str) -> tuple[Name, ...]:
        """``(a, b, ...)``, at least one."""
        self.need(TokenType.L_PAREN, '"("')
        names = self.several(lambda: self.read_name(what, compound=False))
        self.need(TokenType.R_PAREN, '"," or ")"')
        return tuple(names)


USER_OPTIONS = ("PASSWORD", "LOGIN", "NOLOGIN")


class PrincipalRules(TableRules):
    """Rules for users, roles and grants. A rule ends behind the statement's last token."""

    def create_user(self, exists: bool) -> Command:
        """Read what is behind ``CREATE USER [IF NOT EXISTS]``."""
        name = self._principal("a user name")
        options = self._user_options(is_needed=False)
        is_active = options.get("is_active", True)
        return CreateUser(name, options.get("password"), is_active, exists, **self._hidden_origin())

    def alter_user(self, exists: bool) -> Command:
        """Read what is behind ``ALTER USER [IF EXISTS]``."""
        name = self._principal("a user name")
        options = self._user_options(is_needed=True)
        password, drops = options.get("password"), "password" in options and options["password"] is None
        return AlterUser(name, password, drops, options.get("is_active"), exists, **self._hidden_origin())

    def drop_principal(self, what: str, exists: bool) -> Command:
        """Read what is behind ``DROP USER | ROLE [IF EXISTS]``."""
        name = self._principal(f"a {what.lower()} name")
        self.expect_end()
        kind = DropUser if what == "USER" else DropRole
        return kind(name, exists, **self.origin())

    def create_role(self, exists: bool) -> Command:
        """Read what is behind ``CREATE ROLE [IF NOT EXISTS]``."""
        name = self._principal("a role name")
        self.expect_end()
        return CreateRole(name, exists, **self.origin())

    def grant(self, *, is_granted: bool) -> Command:
        """Read what is behind GRANT or REVOKE."""
        towards = "TO" if is_granted else "FROM"
        names = self.several(self._privilege_or_role)
        if self.take_word("ON"):
            privileges = tuple(replace(name, text=name.text.upper()) for name in names)
            target = self._target()
            self.expect_words(towards)
            grantees = self._principals("a user or role name")
            return ChangeGrants(privileges, target, grantees, is_granted, **self.origin())
        if not self.take_word(towards):
            self.fail(f'"," or ON behind privileges, or {towards} behind roles')
        users = self._principals("a user name")
        return ChangeMembers(tuple(names), users, is_granted, **self.origin())

    def _target(self) -> GrantTarget:
        if self.take_word("SYSTEM"):
            return GrantTarget(is_system=True)
        if self.take_word("ALL"):
            self.expect_words("ZONES")
            return GrantTarget()
        if not self.take_word("ZONE"):
            self.fail("SYSTEM, ALL ZONES or ZONE and a name")
        return GrantTarget(zone=self.read_name(compound=False))

    def _user_options(self, *, is_needed: bool) -> dict[str, Any]:
        """``password`` (None: NULL) and ``is_active``, those that are given."""
        is_needed = self.take_word("WITH") or is_needed
        options: dict[str, Any] = {}
        while self._curr or (is_needed and not options):
            word = self.word()
            key = "password" if word == "PASSWORD" else "is_active"
            if word not in ("PASSWORD", "LOGIN", "NOLOGIN"):
                accepted = ", ".join(USER_OPTIONS)
                self.fail(accepted if not options else f"{accepted} or the end of the statement")
            if key in options:
                self.fail("the end of the statement", f"{word} is given twice, or against another option")
            self._advance()
            options[key] = self._password() if key == "password" else word == "LOGIN"
        return options

    def _password(self) -> Secret | None:
        if self.take_word("NULL"):
            return None
        token = self.need(TokenType.STRING, "a password in single quotes, or NULL")
        return Secret(token.text, position=self.place(token))

    def _principals(self, what: str) -> tuple[Name, ...]:
        names = self.several(lambda: self._principal(what))
        self.expect_end('"," or the end of the statement')
        return tuple(names)

    def _principal(self, what: str) -> Name:
        """Compared without case, however it is written."""
        name = self.read_name(what, compound=False)
        return replace(name, text=name.text.lower(), malformed=False)

    def _privilege_or_role(self) -> Name:
        """Privileges are words that are reserved elsewhere (ALTER, CREATE, DROP)."""
        token, word = self._curr, self.word()
        if not word or word in ("ON", "TO", "FROM"):
            return self._principal("a privilege or a role")
        self._advance()
        return Name(word.lower(), self.place(token))

    def _hidden_origin(self) -> dict[str, Any]:
        origin = self.origin()
        return {**origin, "source": hide_secrets(origin["source"])}


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
        exists = self.take_word("IF")
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
            is_late = bool(options and self._curr) and self._curr.token_type == TokenType.L_PAREN
            self.expect_end(expected, "options come before STORAGE PROFILES" if is_late else "")
        return CreateZone(name, tuple(options), exists, **self.origin())

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
