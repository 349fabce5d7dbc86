"""``zonectl login``, ``logout``, ``whoami`` and ``console-link``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from app.cli.address import Address, Context, load_contexts, origin_of, save_contexts
from app.cli.connection import ObjectApi
from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.options import PasswordInput, argument, asker, option, read_password, setting
from app.cli.output import say

DAY_S = 86_400


def login(
    url: Annotated[str, argument("URL", "Address of the server, for example https://zones.example:7443.")],
    user: Annotated[
        str | None, option("--user", "User to log in as.", "NAME", default="the current user")
    ] = None,
    password_stdin: PasswordInput = False,
    ca_file: Annotated[
        Path | None,
        setting(
            "--ca-file", "Authority of the server's certificate, a PEM file.", "FILE", default="the system's"
        ),
    ] = None,
    days: Annotated[int, option("--days", "Days until the login ends.", "N", min=1, max=90)] = 30,
) -> None:
    """Log in to a server, and use it when no other is named.

    Exchanges the password for a token, and stores the token with the server's
    address in a file that only you can read. The token is sent to this address
    only, over TLS. A password is never an argument: it would be in the shell's
    history and in the list of processes.

    A `zonectl up` on this machine needs no login. Programs set
    ZONEKEEPER_TOKEN_FILE to a file with a token, and --url, instead.

    \b
    Examples:
      zonectl login https://zones.example:7443
      zonectl login https://zones.example:7443 --user ci --password-stdin < password.txt
    """
    from app.cli.client import ApiClient

    origin = origin_of(url)
    if not origin.startswith("https://"):
        raise UsageError(f"passwords are sent over HTTPS only: give an https URL, not {origin}")
    name = asker(user)
    address = Address(
        origin, "as given", password=(name, read_password(name, password_stdin)), authority=_text(ca_file)
    )
    with ApiClient(address) as client:
        made = client.ask("POST", "tokens", body={"lifetime_s": days * DAY_S, "scope": ""})
    context = Context(
        origin, made["owner"], made["secret"], made["token_id"], made["expires_at"], address.authority
    )
    save_contexts(load_contexts().with_one(context))
    say(f"logged in to {origin} as {made['owner']} until {made['expires_at']}")


def logout(
    url: Annotated[str, argument("URL", "Address of the server. Without it, that of the last login.")] = "",
) -> None:
    """Revoke the login's token and forget it.

    The token is forgotten even if the server cannot be reached.

    \b
    Example:
      zonectl logout
    """
    from app.cli.client import ApiClient
    from app.cli.problems import RequestError

    contexts = load_contexts()
    context = contexts.of(url or contexts.current) if url or contexts.current else None
    if context is None:
        raise CliError(ExitCode.FAILED, f"not logged in{f' to {url}' if url else ''}")
    save_contexts(contexts.without(context.url))
    try:
        with ApiClient(Address(context.url, "as logged in to", context.token, context.authority)) as client:
            client.ask("DELETE", "tokens", context.token_id)
    except RequestError as error:
        message = f"logged out of {context.url}; the token may be valid until {context.expires_at}: {error}"
        raise CliError(error.exit_code, message) from error
    say(f"logged out of {context.url}")


def whoami(api: ObjectApi) -> None:
    """Show the current user, its roles, and when the login ends.

    \b
    Example:
      zonectl whoami
    """
    with api.client() as client:
        body = client.ask("GET", "whoami")
        url = client.address.url
    roles = ", ".join(body["roles"]) or "no roles"
    until = f", until {body['expires_at']}" if body["expires_at"] else ""
    scope = (f"limited to {body['scope']}",) if body["scope"] else ()
    api.show_one(
        {"url": url, **body},
        f"{body['name']} ({body['source']}) at {url}: {roles}",
        f"by {body['proof'].lower()}{until}",
        *scope,
    )


def console_link(api: ObjectApi) -> None:
    """Create a link that logs in to the console once.

    Open it in a browser within five minutes. Anyone who opens it is logged in as you: do not share it.

    \b
    Example:
      zonectl console-link
    """
    with api.client() as client:
        made = client.ask("POST", "console-links", body={})
        url = f"{origin_of(client.address.url)}{made['path']}"
    api.show_one({"url": url, "expires_at": made["expires_at"]}, url)


def _text(path: Path | None) -> str:
    try:
        return "" if path is None else path.read_text()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
