"""Compiled kernels are kept from one process to the next, also where the sources come in a zip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from spark.session import build_code_zip

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from rebalance.kernels import rendezvous_compiled as kernels
from rebalance.kernels.rendezvous import place
assert kernels.__file__.startswith(sys.argv[1]), kernels.__file__
print(place(("a", "b", "c"), range(1 << 21), 2)[:2].tolist())
found = [each for each in vars(kernels).values() if hasattr(each, "stats") and each.signatures]
print(sum(sum(each.stats.cache_hits.values()) for each in found), len(found))
"""


def run(archive: Path, cache: Path) -> list[str]:
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", PROGRAM, str(archive)],
        capture_output=True, text=True, cwd=cache, check=False,
        env={"PYTHONPATH": packages, "XDG_CACHE_HOME": str(cache), "HOME": str(cache)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_zip_elsewhere_finds_what_another_compiled(tmp_path: Path) -> None:
    """Executors share compiled kernels like this: each application unpacks the zip into a folder of its own."""
    archives = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        archives.append(build_code_zip(tmp_path / name / "zonekeeper.zip"))
    cache = tmp_path / "cache"
    cache.mkdir()
    cells, first = run(archives[0], cache)
    hits, kernels = map(int, first.split())
    assert (hits, kernels > 0) == (0, True)
    again, second = run(archives[1], cache)
    hits, kernels = map(int, second.split())
    assert again == cells
    assert hits == kernels > 0
    assert len(list((cache / "zonekeeper").iterdir())) == 1


def test_servers_and_controllers_start_without_compiled_kernels() -> None:
    """Their compiler is a third of a second of imports, and they are for balanced zones alone."""
    code = "import app.bootstrap.controllers, app.bootstrap.server, sys; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
