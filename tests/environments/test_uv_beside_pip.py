"""uv installs what locks pin, as pip is configured; pip installs the rest, and whatever uv cannot."""

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest
from bare_tool import HERE, SpecMaker, write_wheel

from steptime.environments import tools
from steptime.environments.build import size_of
from steptime.environments.kinds import create
from steptime.environments.locks import LockHeader, lock_of
from steptime.environments.spec import EnvironmentSpec, ReadyEnvironment
from steptime.environments.tools import Venv, find_uv, pip_settings, settings_for_uv
from steptime.errors import EnvironmentFailure

pytestmark = pytest.mark.skipif(find_uv() is None, reason="missing uv: pip install uv")


@pytest.fixture
def locked(spec_of: SpecMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentSpec:
    """A specification with a lock of a wheel that only the folder which pip is configured with has."""
    write_wheel(tmp_path / "wheels", "tiny_one")
    digest = hashlib.sha256(next((tmp_path / "wheels").iterdir()).read_bytes()).hexdigest()
    spec = spec_of("tiny_one==1.0")
    spec.requirements.write_text("tiny_one==1.0\n")
    lock = f"{LockHeader.of(spec.requirements, [HERE])}tiny_one==1.0 --hash=sha256:{digest}\n"
    lock_of(spec.requirements).write_text(lock)
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    configure(tmp_path, monkeypatch)
    return spec


def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Let pip have these settings, and the folder of wheels in the place of an index."""
    settings = ["[global]", "no-index = yes", f"find-links = {tmp_path / 'wheels'}", *lines]
    (tmp_path / "pip.conf").write_text("\n".join(settings))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))


def installers(ready: ReadyEnvironment) -> list[str]:
    """Return the programs that installed an environment's packages, without their versions."""
    assert ready.folder is not None
    return [name.split()[0] for name in json.loads((ready.folder / "ready.json").read_text())["installers"]]


def programs(spec: EnvironmentSpec, version: str, folder: Path) -> list[str]:
    """Return what would install the requirements, in the order of trying."""
    tried = []
    command = list(Venv().commands(spec, Path(sys.executable), version, folder))[-1]
    while command is not None:
        tried.append(str(command.installer).split()[0])
        command = command.otherwise
    return tried


@pytest.mark.costly
def test_uv_installs_a_lock_from_where_pip_is_configured_to_look(locked: EnvironmentSpec, cache: Path) -> None:
    ready = create(locked, cache=cache)

    assert (ready.packages["tiny-one"], installers(ready)) == ("1.0", ["uv"])


@pytest.mark.costly
def test_what_uv_cannot_install_pip_does(
    locked: EnvironmentSpec, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "uv"
    broken.write_text("#!/bin/sh\ntest $1 = --version && echo uv 9\n")
    broken.chmod(0o700)
    monkeypatch.setattr(tools, "find_uv", lambda: broken)

    ready = create(locked, cache=cache)

    assert (ready.packages["tiny-one"], installers(ready)) == ("1.0", ["pip"])


@pytest.mark.costly
def test_a_constraint_of_pip_that_a_lock_does_not_meet_refuses_it(
    locked: EnvironmentSpec, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "constraints").write_text("tiny_one<1\n")
    configure(tmp_path, monkeypatch, f"constraint = {tmp_path / 'constraints'}")

    with pytest.raises(EnvironmentFailure, match="conflicting dependencies"):
        create(locked, cache=cache)


@pytest.mark.parametrize(("constraint", "tried"), [("tiny_one<2", ["uv", "pip"]), ("tiny_one<1", ["pip"])])
def test_uv_installs_a_lock_that_meets_the_constraints(
    locked: EnvironmentSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, constraint: str, tried: list[str]
) -> None:
    (tmp_path / "constraints").write_text(constraint)
    settings = {"no-index": "1", "find-links": str(tmp_path / "wheels"), "constraint": str(tmp_path / "constraints")}
    monkeypatch.setattr(tools, "pip_settings", lambda _python: settings)

    assert programs(locked, HERE, Path(sys.prefix)) == tried


@pytest.mark.parametrize("setting", ["keyring-provider", "platform", "python", "no-build-isolation", "future-setting"])
def test_pip_installs_where_it_has_a_setting_that_uv_has_not(
    locked: EnvironmentSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setattr(tools, "pip_settings", lambda _python: {setting: "1"})

    assert programs(locked, HERE, tmp_path) == ["pip"]


@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_pip_installs_for_a_python_that_uv_is_too_new_for(
    locked: EnvironmentSpec, tmp_path: Path, version: str
) -> None:
    lock = lock_of(locked.requirements)
    lock.write_text(lock.read_text().replace(f"pythons: {HERE}", f"pythons: {version} {HERE}"))

    assert programs(locked, version, tmp_path) == ["pip"]


def test_pip_installs_what_no_lock_pins(locked: EnvironmentSpec, tmp_path: Path) -> None:
    lock_of(locked.requirements).unlink()

    assert programs(locked, HERE, tmp_path) == ["pip"]


def test_of_pips_settings_a_variable_counts_before_the_commands_section_and_that_before_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["timeout = 7", "retries = 1", "[install]", "retries = 2", "timeout = 8", "[download]", "timeout = 9"]
    configure(tmp_path, monkeypatch, *lines)
    monkeypatch.setenv("PIP_TIMEOUT", "6")

    settings = pip_settings(Path(sys.executable))

    assert (settings["timeout"], settings["retries"], settings["no-index"]) == ("6", "2", "yes")


@pytest.mark.parametrize(
    ("name", "value", "variables"),
    [
        ("index-url", "https://a/simple", {"UV_INDEX_URL": "https://a/simple"}),
        ("extra-index-url", "https://a\nhttps://b", {"UV_EXTRA_INDEX_URL": "https://a https://b"}),
        ("find-links", "/a  /b", {"UV_FIND_LINKS": "/a,/b"}),
        ("no-index", "no", {"UV_NO_INDEX": "false"}),
        ("cert", "/a.pem", {"SSL_CERT_FILE": "/a.pem"}),
        ("trusted-host", "a b:1", {"UV_INSECURE_HOST": "a b:1"}),
        ("proxy", "http://p", {"HTTP_PROXY": "http://p", "HTTPS_PROXY": "http://p", "ALL_PROXY": "http://p"}),
        ("default-timeout", "9", {"UV_HTTP_TIMEOUT": "9"}),
        ("no-cache-dir", "true", {"UV_NO_CACHE": "true"}),
        ("progress-bar", "off", {}),
    ],
)
def test_a_setting_of_pip_reaches_uv(
    name: str, value: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in variables:
        monkeypatch.delenv(variable, raising=False)

    assert settings_for_uv({name: value}) == (variables, [])


def test_a_variable_of_uv_counts_before_pips_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_URL", "https://own")

    assert settings_for_uv({"index-url": "https://pips"}) == ({}, [])


def test_removal_frees_no_file_that_a_cache_keeps_too(tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    empty = size_of(tmp_path / "environment", own=True)
    (tmp_path / "kept").write_bytes(b"1234567")
    (tmp_path / "environment" / "linked").hardlink_to(tmp_path / "kept")
    (tmp_path / "environment" / "own").write_bytes(b"12")

    assert size_of(tmp_path / "environment") - empty == 9
    assert size_of(tmp_path / "environment", own=True) - empty == 2
