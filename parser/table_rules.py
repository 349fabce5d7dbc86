"""CREATE TABLE and ALTER TABLE, as far as a zone catalog needs tables.

``CREATE TABLE name (column type ..., PRIMARY KEY (a, b)) [COLOCATE [BY] (a)] [ZONE name]
[STORAGE PROFILE 'p']``, in that order. Types are read by name and checked later; constraints other than the
primary key, NOT NULL and a literal DEFAULT are not part of the grammar.
"""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from catalog.core.errors import ErrorKind
from catalog.core.messages import (
    AddColumns,
    ColumnClause,
    ColumnType,
    Command,
    CreateTable,
    DropColumns,
    Name,
    ProfileName,
    shortened,
)
from parser.options import DATED_LITERALS, NUMBER, OptionRules
from parser.rules import RESERVED

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
        while True:
            self.read_table_element(columns, keys)
            if not self.take(TokenType.COMMA):
                break
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
            columns: list[ColumnClause] = []
            listed = self.take(TokenType.L_PAREN)
            while True:
                columns.append(self.read_column(None))
                if not listed or not self.take(TokenType.COMMA):
                    break
            if listed:
                self.need(TokenType.R_PAREN, '"," or ")"')
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
            return f"{word} {_quoted(self.need(TokenType.STRING, 'a single-quoted string').text)}"
        string = self.take(TokenType.STRING)
        if string:
            return _quoted(string.text)
        sign = "-" if self.take(TokenType.DASH) else ""
        number = self.need(TokenType.NUMBER, "a literal")
        if not NUMBER.fullmatch(number.text):
            self.refuse(ErrorKind.SYNTAX_ERROR, f"{shortened(number.text)} is not a number", number)
        return sign + number.text

    def read_names(self, what: str) -> tuple[Name, ...]:
        """``(a, b, ...)``, at least one."""
        self.need(TokenType.L_PAREN, '"("')
        names = [self.read_name(what, compound=False)]
        while self.take(TokenType.COMMA):
            names.append(self.read_name(what, compound=False))
        self.need(TokenType.R_PAREN, '"," or ")"')
        return tuple(names)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
