"""Packages that are shipped, of those that are locked: the project's dependencies without those of its tests.

    python scripts/shipped.py requirements    # for pip install --require-hashes
    python scripts/shipped.py sbom            # CycloneDX 1.5, as JSON

Reads requirements.lock and pyproject.toml and nothing else: it runs before anything is installed, and twice
with one result.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

ROOT = Path(__file__).parents[1]
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)==([^ ;\\]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
OWN = "zonekeeper"


@dataclass(frozen=True)
class Locked:
    """One version of the lock file. ``users``: what depends on it. ``text``: its lines."""

    name: str
    version: str
    hashes: tuple[str, ...]
    users: frozenset[str]
    text: str

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def project() -> dict[str, Any]:
    body: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return body


def locked() -> list[Locked]:
    text = (ROOT / "requirements.lock").read_text()
    return [_locked(block) for block in re.split(r"\n(?=[a-z0-9])", text) if REQUIREMENT.match(block)]


def shipped() -> list[Locked]:
    """The dependencies of pyproject.toml with theirs, and what builds the project."""
    table = project()
    direct = [*table["project"]["dependencies"], *table["build-system"]["requires"]]
    names = {_normal(re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0]) for text in direct}
    every = locked()
    while more := {each.name for each in every if each.users & names} - names:
        names |= more
    return [each for each in every if each.name in names]


def sbom() -> dict[str, Any]:
    """The bill of materials, without a time, so that the same lock file makes the same document."""
    parts = shipped()
    table = project()["project"]
    own = {
        **{"type": "application", "bom-ref": OWN, "name": table["name"], "version": table["version"]},
        "licenses": [{"license": {"id": table["license"]}}],
    }
    serial = uuid5(NAMESPACE_URL, " ".join(sorted(part.purl for part in parts)))
    needs: dict[str, list[str]] = {OWN: []}
    for part in parts:
        needs.setdefault(part.purl, [])
    for part in parts:
        direct = [user for user in parts if user.name in part.users]
        for user in [user.purl for user in direct] or [OWN]:
            needs[user].append(part.purl)
    return {
        **{"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1},
        "metadata": {"component": own},
        "components": [_component(part) for part in parts],
        "dependencies": [{"ref": ref, "dependsOn": sorted(refs)} for ref, refs in needs.items()],
    }


def _component(part: Locked) -> dict[str, Any]:
    """Each hash is of one file of the release: pip accepts any of them."""
    files = [
        {"type": "distribution", "url": part.purl, "hashes": [{"alg": "SHA-256", "content": content}]}
        for content in part.hashes
    ]
    return {
        **{"type": "library", "bom-ref": part.purl, "name": part.name, "version": part.version},
        **{"purl": part.purl, "externalReferences": files},
    }


def _locked(block: str) -> Locked:
    match = REQUIREMENT.match(block)
    assert match is not None
    comments = block.rpartition("# via")[2] if "# via" in block else ""
    users = {_normal(word) for word in re.findall(r"[A-Za-z0-9._-]+", comments.replace("(pyproject.toml)", ""))}
    lines = "\n".join(line for line in block.splitlines() if not line.lstrip().startswith("#"))
    return Locked(_normal(match[1]), match[2], tuple(HASH.findall(block)), frozenset(users - {OWN}), lines)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(arguments: list[str]) -> int:
    if arguments == ["requirements"]:
        print("\n".join(part.text for part in shipped()))
    elif arguments == ["sbom"]:
        print(json.dumps(sbom(), indent=2))
    else:
        print(__doc__, file=sys.stderr)
        return 64
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
