"""``zonectl admin``: commands that need the catalog's own credentials instead of a login."""

from __future__ import annotations

from typing import Annotated

from app.cli.options import (
    DEFAULT_DATA_DIR,
    CatalogOption,
    DataDirOption,
    PasswordInput,
    group,
    make_settings,
    option,
    read_password,
)
from app.cli.output import say
from app.cli.services import keep_private, one_line

app = group("Recover an administrator on the machine of the catalog.")


@app.command()
def recover(
    user: Annotated[str, option("--user", "User to make an administrator.", "NAME")] = "admin",
    password_stdin: PasswordInput = False,
    catalog_url: CatalogOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> None:
    """Make a user an administrator, with a new password.

    For the first administrator, and for when no administrator can log in. It writes to the
    catalog itself, so it needs no login, but the catalog's credentials; a catalog
    in SQLite must have no server running. The audit log records it, and `status`
    shows it for 7 days.

    \b
    Examples:
      zonectl admin recover
      zonectl admin recover --user alice --catalog-url postgresql+psycopg://zonekeeper@db/zonekeeper
    """
    import asyncio

    from app.bootstrap.catalog_administrators import recover as recover_user

    settings = make_settings(catalog_url=catalog_url, data_dir=data_dir)
    keep_private(data_dir, catalog_url)
    name = user.lower()
    password = read_password(name, password_stdin)
    with one_line():
        is_new = asyncio.run(recover_user(settings.catalog, name, password))
    say(f"{name} is an administrator with a new password" + (", and a new user" if is_new else ""))
