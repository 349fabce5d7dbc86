"""``zonectl token``: tokens for programs."""

from __future__ import annotations

from typing import Annotated

from app.cli.connection import ObjectApi, RowsApi
from app.cli.options import argument, group, option

app = group("Create, list and revoke tokens for programs.")


@app.command()
def create(
    api: ObjectApi,
    days: Annotated[int, option("--days", "Days until it expires.", "N", min=1, max=90)] = 30,
    scope: Annotated[
        str,
        option(
            "--scope",
            "Privileges that it is limited to: ... ON SYSTEM, ON ALL ZONES or ON ZONE with an id.",
            "TEXT",
            default="all that you may do",
        ),
    ] = "",
) -> None:
    """Create a token, and print it once.

    Drivers send it as a bearer token or as a JWT. It allows at most what you may do
    when it is used. It cannot be shown again: store it where the program reads it.

    \b
    Examples:
      (umask 077 && zonectl token create --days 7 > ci.token)
      zonectl token create --scope "SEE, READ ON ALL ZONES; WRITE ON ZONE 7" --format json
    """
    with api.client() as client:
        made = client.ask("POST", "tokens", body={"lifetime_s": days * 86_400, "scope": scope})
    api.show_one(made, made["secret"])


@app.command("list")
def list_tokens(
    api: RowsApi,
    everybody: Annotated[bool, option("--all", "Tokens of all users. Requires ADMIN.")] = False,
) -> None:
    """List tokens, newest first.

    \b
    Example:
      zonectl token list
    """
    with api.client() as client:
        tokens = client.ask("GET", "tokens", query={"all": "true"} if everybody else {})["tokens"]
    columns = {name: name for name in ("token_id", "owner", "scope", "created_at", "expires_at")}
    api.show(tokens, {**columns, "valid": lambda token: "yes" if token["valid"] else "no"})


@app.command()
def revoke(
    api: ObjectApi,
    token_id: Annotated[str, argument("TOKEN_ID", "Id of the token, as `zonectl token list` shows it.")],
) -> None:
    """Revoke a token. Every server refuses it within 2 s.

    \b
    Example:
      zonectl token revoke 3f9c2a417b0e
    """
    with api.client() as client:
        revoked = client.ask("DELETE", "tokens", token_id)
    api.show_one(revoked, f"token {token_id} of {revoked['owner']} is revoked")
