"""The stage on which users log in, over HTTPS: the scene ``small`` with the users of the role walk.

``python -m tests.console.login_stage --port 8443``. A line on standard input is a user's name, answered by a
link that logs it in.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
import tempfile
from pathlib import Path

import trustme

from app.edge.request_rules import HttpLimits
from app.edge.trust import Trust
from app.edge.uvicorn_server import listen, serve_http
from app.process.logs import configure
from app.security.console_login import LOGIN
from tests.fixtures.known_users import user_of
from tests.fixtures.open_console import open_console
from tests.fixtures.page_walk import USERS


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


async def _play(port: int) -> None:
    with tempfile.TemporaryDirectory() as directory, listen("127.0.0.1", port) as listener:
        async with open_console(Path(directory)) as console:
            for sql in USERS:
                await console.run(sql)
            context = _context()
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            serving = asyncio.create_task(
                serve_http(console.app, listener, lambda: None, Trust(), HttpLimits(), lambda: context)
            )
            print(f"{url}/console/", flush=True)
            try:
                while line := await asyncio.to_thread(sys.stdin.readline):
                    link = await console.sessions.new_link(await user_of(console.world.catalog, line.strip()))
                    print(f"{url}{LOGIN}#{link}", flush=True)
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)


def main() -> None:
    # To standard error: nobody empties the pipe of standard output for what is not an address.
    configure("login stage")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(_play(parser.parse_args().port))


if __name__ == "__main__":
    main()
