"""Environment of child processes, a list of variables, and the closing of files to other users."""

from __future__ import annotations

import ast
import os
import stat
from pathlib import Path

import pytest

from app.supervision.child_plan import DEMO_INHERITS, NODE_INHERITS, SERVER_INHERITS
from app.supervision.privacy import keep_private
from rebalance.hosting.child import ETCD, PYTHON, SPARK, SYSTEM, environment
from rebalance.hosting.private_files import replace_privately, tighten

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "catalog", "parser", "rebalance", "spark")
GIVEN = {
    "PATH": "/bin",
    "LC_ALL": "C.UTF-8",
    "AWS_SECRET_ACCESS_KEY": "canary",
    "HTTPS_PROXY": "http://user:canary@proxy",
    "ZONEKEEPER_CATALOG_URL": "postgresql://a:canary@db/z",
    "ZONEKEEPER_METASTORE": "etcd:2379",
    "ZONEKEEPER_NODE_LEASE_S": "7",
    "PGPASSWORD": "canary",
    "ETCD_INITIAL_CLUSTER": "canary",
    "ETCD_UNSUPPORTED_ARCH": "arm",
    "JAVA_HOME": "/java",
    "SPARK_CONF_DIR": "/spark",
    "PYTHONPATH": "/code",
    "OMP_NUM_THREADS": "2",
}


@pytest.mark.parametrize(
    ("inherited", "names"),
    [
        ((), set()),
        (SYSTEM, {"PATH", "LC_ALL"}),
        (ETCD, {"PATH", "LC_ALL", "ETCD_UNSUPPORTED_ARCH"}),
        (PYTHON, {"PATH", "LC_ALL", "PYTHONPATH", "OMP_NUM_THREADS"}),
        (SPARK, {"PATH", "LC_ALL", "PYTHONPATH", "OMP_NUM_THREADS", "JAVA_HOME", "SPARK_CONF_DIR"}),
    ],
)
def test_a_child_inherits_what_is_on_its_list(inherited: tuple[str, ...], names: set[str]) -> None:
    assert environment(inherited, source=GIVEN).keys() == names
    assert environment(inherited, {"MORE": "x"}, GIVEN) == {"MORE": "x"} | {name: GIVEN[name] for name in names}


def test_the_catalogs_password_goes_to_the_server_alone() -> None:
    def secrets(inherited: tuple[str, ...]) -> set[str]:
        return {name for name, value in environment(inherited, source=GIVEN).items() if "canary" in value}

    assert secrets(SERVER_INHERITS) == {"ZONEKEEPER_CATALOG_URL", "PGPASSWORD"}
    assert secrets(NODE_INHERITS) == secrets(DEMO_INHERITS) == set()
    for inherited in (SERVER_INHERITS, NODE_INHERITS):
        assert environment(inherited, source=GIVEN)["ZONEKEEPER_NODE_LEASE_S"] == "7"


STARTS = {
    *("subprocess.Popen", "subprocess.run", "os.system"),
    *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
}


def starts_of_processes() -> list[tuple[str, ast.Call]]:
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    nodes = ((path, node) for path in paths for node in ast.walk(ast.parse(path.read_text())))
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node)
        for path, node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS
    ]


def test_no_process_is_started_with_the_whole_environment() -> None:
    """Each start says its environment, and says it by the one function."""
    starts = starts_of_processes()
    assert len(starts) >= 5
    for place, call in starts:
        given = next((ast.unparse(each.value) for each in call.keywords if each.arg == "env"), "")
        # ``spawn`` hands on what it has made by the function.
        assert given.startswith("environment(") or (given == "env" and "hosting/child.py" in place), place


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_is_ours_is_closed_and_nothing_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("")
    data = tmp_path / "data"
    (data / "logs" / "old").mkdir(parents=True)
    for name in ("catalog.sqlite", "catalog.sqlite-wal", "logs/etcd.log", "logs/old/n1.log", "notes.txt"):
        (data / name).write_text("")
        (data / name).chmod(0o644)
    (data / "logs" / "link").symlink_to(outside)
    (data / "run.sh").write_text("")
    (data / "run.sh").chmod(0o755)
    ours = ("catalog.sqlite*", "logs", "run.sh")
    assert tighten(data, ours) == []
    for name in ("catalog.sqlite", "catalog.sqlite-wal", "logs/etcd.log", "logs/old/n1.log"):
        assert mode(data / name) == 0o600, name
    assert mode(data / "run.sh") == mode(data / "logs") == mode(data / "logs" / "old") == 0o700
    # What is not ours stays, and so does a directory that holds it; a link leads nowhere.
    assert mode(data / "notes.txt") == mode(outside) == 0o644
    assert mode(data) == 0o755
    (data / "notes.txt").unlink()
    assert tighten(data, ours) == []
    assert mode(data) == 0o700


def test_a_directory_of_everybody_stays_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "logs").mkdir()
    assert tighten(tmp_path, ("logs",)) == []
    assert (mode(tmp_path), mode(tmp_path / "logs")) == (0o1777, 0o700)
    assert len(tighten(tmp_path / "nowhere", ("logs",))) == 1


def test_a_secret_is_its_owners_from_the_first_moment(tmp_path: Path) -> None:
    """The file is private whatever the umask, and whatever stands in its place: a link is replaced, not
    followed."""
    outside, secret = tmp_path / "outside", tmp_path / "secret"
    outside.write_text("somebody else's")
    secret.symlink_to(outside)
    before = os.umask(0)
    try:
        replace_privately(secret, b"first")
        assert (secret.read_bytes(), mode(secret), secret.is_symlink()) == (b"first", 0o600, False)
        secret.chmod(0o644)
        replace_privately(secret, b"second")
        assert (secret.read_bytes(), mode(secret)) == (b"second", 0o600)
    finally:
        os.umask(before)
    assert outside.read_text() == "somebody else's"
    assert {path.name for path in tmp_path.iterdir()} == {"outside", "secret"}


def test_a_secret_that_cannot_be_kept_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    with pytest.raises(OSError, match="secret"):
        replace_privately(tmp_path / "secret", b"value")
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_files_of_others_in_a_data_directory_are_warned_of(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        data = tmp_path / "data"
        assert keep_private(data) == []
        data.mkdir(mode=0o755)
        data.chmod(0o755)
        (data / "notes.txt").write_text("")
        (data / "catalog.sqlite").write_text("")
        (warning,) = keep_private(data)
        assert warning == f"the names of {data}, which holds other files too: it is left as it is"
        assert mode(data / "catalog.sqlite") == 0o600
        (data / "notes.txt").unlink()
        assert keep_private(data) == []
        assert mode(data) == 0o700
    finally:
        os.umask(before)
