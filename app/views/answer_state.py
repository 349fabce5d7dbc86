"""State of something that is to answer in time, in a line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

OK = "ok"


async def state_of(question: Awaitable[object], limit_s: float) -> str:
    """Await the answer for at most ``limit_s``: ``OK``, or what went wrong, in a line."""
    try:
        async with asyncio.timeout(limit_s):
            await question
    except TimeoutError:
        return f"no answer within {limit_s:.0f} s"
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return OK
