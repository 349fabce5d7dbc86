"""CREATE, ALTER and DROP of users and roles, GRANT and REVOKE.

Grammar, in CockroachDB's words::

    CREATE USER [IF NOT EXISTS] name [[WITH] { PASSWORD 'secret' | PASSWORD NULL | LOGIN | NOLOGIN } ...]
    ALTER USER [IF EXISTS] name [WITH] { PASSWORD 'secret' | PASSWORD NULL | LOGIN | NOLOGIN } ...
    CREATE ROLE [IF NOT EXISTS] name
    DROP USER | ROLE [IF EXISTS] name
    GRANT privilege [, ...] ON { SYSTEM | ALL ZONES | ZONE zone } TO user_or_role [, ...]
    GRANT role [, ...] TO user [, ...]
    REVOKE ... FROM ..., as GRANT

No message repeats anything of a statement on users: what stands in a wrong place may be the password.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot.tokenizer_core import TokenType

from catalog.core.messages import (
    AlterUser,
    ChangeGrants,
    ChangeMembers,
    Command,
    CreateRole,
    CreateUser,
    DropRole,
    DropUser,
    GrantTarget,
    Name,
    Secret,
)
from parser.hidden_secrets import hide_secrets
from parser.table_rules import TableRules

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
        names = [self._privilege_or_role()]
        while self.take(TokenType.COMMA):
            names.append(self._privilege_or_role())
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
        is_needed = self.take_word("WITH") is not None or is_needed
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
        names = [self._principal(what)]
        while self.take(TokenType.COMMA):
            names.append(self._principal(what))
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
