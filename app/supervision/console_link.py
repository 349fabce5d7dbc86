"""The link that opens the console logged in, made by the server for whoever holds the token of ``up``."""

from __future__ import annotations

import http.client
import json
import ssl
from urllib.parse import urlsplit

from app.supervision.installation_state import LocalLogin

TIME_LIMIT_S = 2.0
PATH = "/api/v1/console-links"


def new_console_link(url: str, login: LocalLogin) -> str:
    """Of the API at ``url``, whose certificate is checked; empty: it gives none. Raises OSError while it does
    not answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "",
        parts.port,
        timeout=TIME_LIMIT_S,
        context=ssl.create_default_context(cafile=str(login.authority)),
    )
    headers = {
        "Authorization": f"Bearer {login.token_file.read_text().strip()}",
        "Content-Type": "application/json",
    }
    try:
        connection.request("POST", PATH, b"{}", headers)
        answer = connection.getresponse()
        return f"{url}{json.load(answer)['path']}" if answer.status == http.HTTPStatus.CREATED else ""
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()
