"""The contract of the API's answers: it is light, it names no enum's values itself, and it is what is sent."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from app.contract.marks import About, OneOf
from tests.fixtures.checked_answers import CheckedTransport

ROOT = Path(__file__).parents[2]


class Colour(Enum):
    RED = "RED"
    BLUE = "BLUE"


class Painted(TypedDict):
    colour: Annotated[str, OneOf(Colour, "NONE", less=Colour.BLUE)]
    coats: Annotated[int, About("how often it was painted")]


def test_it_is_imported_without_pydantic_and_fastapi() -> None:
    names = [path.stem for path in (ROOT / "app" / "contract").glob("*.py") if path.stem != "__init__"]
    assert len(names) > 8
    code = "; ".join(f"import app.contract.{name}" for name in names)
    code += "; import sys; print([m for m in ('pydantic', 'fastapi', 'httpx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_enum_of_a_core_is_a_schema() -> None:
    schema = TypeAdapter(Painted).json_schema()["properties"]
    assert schema["colour"]["enum"] == ["RED", "NONE"]
    assert schema["coats"] == {"type": "integer", "title": "Coats", "description": "how often it was painted"}
    with pytest.raises(ValidationError):
        TypeAdapter(Painted).validate_python({"colour": "BLUE", "coats": 1})


@pytest.mark.parametrize(
    "body", [{"colour": "RED"}, {"colour": "GREEN", "coats": 1}, {"colour": "RED", "coats": 1, "more": 1}]
)
async def test_an_answer_that_is_not_the_contract_fails_the_test(body: dict[str, Any]) -> None:
    app = FastAPI()

    @app.get("/painted", response_model=Painted)
    async def painted() -> JSONResponse:
        return JSONResponse(body)

    async with httpx.AsyncClient(transport=CheckedTransport(app), base_url="http://api") as client:
        with pytest.raises((AssertionError, ValidationError)):
            await client.get("/painted")
