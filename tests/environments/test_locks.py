"""Lock files: an installer takes the files that they name and no others."""

import hashlib
import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from bare_tool import HERE, BorrowedPip, SpecMaker, write_wheel
from packaging.requirements import Requirement
from typer.testing import CliRunner

from steptime.cli.env import app
from steptime.environments.cache import address
from steptime.environments.kinds import KINDS, CachedEnvironment, EnvironmentSpec
from steptime.environments.lock_renewal import LockRenewal, changes
from steptime.environments.locks import LockHeader, current_lock, lock_of, requirement_lines
from steptime.environments.spec import BuildContext, ReadyEnvironment
from steptime.environments.tools import Tool, Uv, find_uv
from steptime.errors import EnvironmentFailure
from steptime.frameworks.caffe import finish
from steptime.runner import preparation
from steptime.runner.preparation import all_environment_specs

SPECS = {name: spec for name, spec in all_environment_specs().items() if "steptime" in spec.requirements.parts}
FILES = [
    pytest.param(spec, path, id=f"{name}-{path.name}") for name, spec in SPECS.items() for path in spec.lockable_files
]
WRONG = "0" * 64


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """The folder that the test's requirements take wheels from."""
    folder = tmp_path / "wheels"
    write_wheel(folder, "tiny_one")
    return folder


def made(spec: EnvironmentSpec, cache: Path) -> ReadyEnvironment:
    """Return the environment of ``spec``, made with the pip of the tests."""
    return CachedEnvironment(BorrowedPip()).create(spec, BuildContext(cache))


Lock = Callable[..., None]


@pytest.fixture
def lock(wheels: Path) -> Lock:
    """Return a function that writes the lock of a requirements file, with the digests that the wheels have."""

    def write(requirements: Path, *pins: str, digest: str | None = None) -> None:
        lines = ["--no-index", f"--find-links {wheels}"]
        for pin in pins:
            (file,) = wheels.glob(f"{pin.replace('==', '-')}[-.]*") if digest is None else [None]
            lines.append(f"{pin} --hash=sha256:{digest or hashlib.sha256(file.read_bytes()).hexdigest()}")
        lock_of(requirements).write_text(f"{LockHeader.of(requirements, [HERE])}" + "\n".join(lines) + "\n")

    return write


@pytest.mark.parametrize("tool", [BorrowedPip(), Uv()], ids=["pip", "uv"])
def test_a_wheel_with_another_hash_is_refused_by_name(tool: Tool, spec_of: SpecMaker, lock: Lock, cache: Path) -> None:
    if tool.kind == "uv" and find_uv() is None:
        pytest.skip("missing uv: pip install uv")
    spec = spec_of("tiny_one==1.0")
    lock(spec.requirements, "tiny_one==1.0", digest=WRONG)

    with pytest.raises(EnvironmentFailure, match=r"tiny[-_]one==1\.0 is another file than .* steptime env lock tiny"):
        CachedEnvironment(tool).create(spec, BuildContext(cache))

    assert [path.suffix for path in (cache / "environments").glob("tiny*")] == [".log"]


def test_a_dependency_that_no_lock_names_is_refused(spec_of: SpecMaker, lock: Lock, cache: Path, wheels: Path) -> None:
    write_wheel(wheels, "tiny_two", requires=["tiny_one"])
    spec = spec_of("tiny_two==1.0")
    lock(spec.requirements, "tiny_two==1.0")

    with pytest.raises(EnvironmentFailure, match=r"tiny.one"):
        made(spec, cache)


BACKEND = """
import pathlib, zipfile

METADATA = "Metadata-Version: 2.1\\nName: tiny_source\\nVersion: 1.0\\n"
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "tiny_source-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        for file, text in {"METADATA": METADATA, "WHEEL": WHEEL, "RECORD": ""}.items():
            wheel.writestr("tiny_source-1.0.dist-info/" + file, text)
    return name
"""


def test_the_build_of_a_source_distribution_fetches_nothing(
    spec_of: SpecMaker, lock: Lock, cache: Path, wheels: Path
) -> None:
    files = {
        "pyproject.toml": "[build-system]\nrequires = ['not-there']\nbuild-backend = 'own'\nbackend-path = ['.']\n",
        "own.py": BACKEND,
        "PKG-INFO": "Metadata-Version: 2.1\nName: tiny_source\nVersion: 1.0\n",
    }
    with tarfile.open(wheels / "tiny_source-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"tiny_source-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    spec = spec_of("tiny_source==1.0")
    lock(spec.requirements, "tiny_source==1.0")

    assert made(spec, cache).packages["tiny-source"] == "1.0"


@pytest.fixture
def with_local_build(spec_of: SpecMaker, lock: Lock, wheels: Path) -> EnvironmentSpec:
    """An environment with a local build of what it needs."""
    write_wheel(wheels, "tiny_one", "1.0+cpu")
    spec = spec_of("tiny_one==1.0", verify="import tiny_one")
    local = spec.requirements.with_name("requirements.cpu.txt")
    local.write_text("-r requirements.txt\ntiny_one==1.0+cpu\n")
    lock(spec.requirements, "tiny_one==1.0")
    lock(local, "tiny_one==1.0+cpu")
    return spec


def test_a_local_build_is_taken_where_pip_finds_it(with_local_build: EnvironmentSpec, cache: Path) -> None:
    assert made(with_local_build, cache).packages["tiny-one"] == "1.0+cpu"


def test_the_usual_build_is_taken_where_pip_finds_no_local_one(
    with_local_build: EnvironmentSpec, cache: Path, wheels: Path
) -> None:
    (wheels / "tiny_one-1.0+cpu-py3-none-any.whl").unlink()

    assert made(with_local_build, cache).packages["tiny-one"] == "1.0"


def test_a_lock_of_other_requirements_is_refused_with_the_command_that_renews_it(
    spec_of: SpecMaker, lock: Lock
) -> None:
    spec = spec_of("tiny_one==1.0")
    lock(spec.requirements, "tiny_one==1.0")
    assert current_lock(spec.requirements, spec, HERE) == lock_of(spec.requirements)

    with spec.requirements.open("a") as file:
        file.write("tiny_two\n")

    with pytest.raises(EnvironmentFailure, match="steptime env lock tiny"):
        current_lock(spec.requirements, spec, HERE)


def test_another_lock_is_another_environment(spec_of: SpecMaker, lock: Lock, cache: Path) -> None:
    spec = spec_of("tiny_one==1.0")
    before = address(spec, HERE, cache)
    lock(spec.requirements, "tiny_one==1.0")

    assert address(spec, HERE, cache) != before


def test_a_package_of_debian_with_another_digest_is_refused_before_it_is_unpacked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "caffe_1.0_amd64.deb"
    package.write_bytes(b"changed")

    with pytest.raises(SystemExit):
        finish._require_digests([package], {"caffe": ("1.0", WRONG)})

    assert capsys.readouterr().err.splitlines() == [
        "caffe_1.0_amd64.deb is another file than the one that the lock names",
        "fix: steptime env lock caffe",
    ]


def test_the_packages_of_debian_are_locked_for_every_kind_of_machine() -> None:
    found = [finish._locked(machine) for machine in finish._ARCHITECTURES]

    assert [each["python3-caffe"][0].split("-")[0] for each in found] == ["1.0.0+git20180821.99bd997"] * 2


@pytest.mark.parametrize("locked", [True, False])
def test_a_framework_without_a_lock_is_installed_with_a_notice(  # noqa: PLR0913, PLR0917 - fixtures
    locked: bool, spec_of: SpecMaker, lock: Lock, cache: Path, bare: CachedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "bare", bare)
    monkeypatch.setenv("STEPTIME_CACHE", str(cache))
    spec = spec_of("tiny_one==1.0", kind="bare")
    if locked:
        lock(spec.requirements, "tiny_one==1.0")
    observer = Mock()

    preparation.prepare_environments([spec], observer)

    notices = ["has no lock file" in str(call) for call in observer.note.call_args_list]
    assert notices == ([] if locked else [True])


@pytest.mark.parametrize("uv", [None, Path("uv")], ids=["without", "with"])
def test_where_pip_makes_environments_the_extra_that_is_faster_is_named(  # noqa: PLR0913, PLR0917 - fixtures
    uv: Path | None,
    spec_of: SpecMaker,
    lock: Lock,
    cache: Path,
    bare: CachedEnvironment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(KINDS, "venv", bare)
    monkeypatch.setattr(preparation, "find_uv", lambda: uv)
    monkeypatch.setenv("STEPTIME_CACHE", str(cache))
    spec = spec_of("tiny_one==1.0")
    lock(spec.requirements, "tiny_one==1.0")
    observer = Mock()

    preparation.prepare_environments([spec], observer)

    named = ["pip install 'steptime[uv]'" in str(call.args) for call in observer.note.call_args_list]
    assert any(named) == (uv is None)


@pytest.fixture
def renewable(spec_of: SpecMaker, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentSpec:
    """An environment whose lock uv can make without a network, and the only one that there is."""
    if find_uv() is None:
        pytest.skip("missing uv: pip install uv")
    write_wheel(wheels, "tiny_two", requires=["tiny_one"])
    spec = spec_of("tiny_two>=1")
    monkeypatch.setattr(preparation, "all_environment_specs", lambda: {"tiny": spec})
    return spec


def test_a_new_lock_has_all_that_is_needed_with_hashes_and_names_no_folder(renewable: EnvironmentSpec) -> None:
    renewal = LockRenewal()
    renewal.renew(renewable.requirements, renewable)
    renewal.write(renewable.requirements)

    text = lock_of(renewable.requirements).read_text()
    assert re.findall(r"^(\S+)==1\.0.*\\\n    --hash=sha256:[0-9a-f]{64}$", text, re.MULTILINE) == [
        "tiny-one",
        "tiny-two",
    ]
    assert "/" not in text


def test_the_verb_writes_the_lock_and_shows_what_has_changed(renewable: EnvironmentSpec, wheels: Path) -> None:
    CliRunner().invoke(app, ["lock", "tiny"])
    write_wheel(wheels, "tiny_two", "2.0", requires=["tiny_three"])
    write_wheel(wheels, "tiny_three")

    done = CliRunner().invoke(app, ["lock", "tiny", "--json"])

    assert re.findall(r'"(?:package|change|before|after)": "(.*?)"', done.stdout) == [
        *("tiny-one", "removed", "1.0", ""),
        *("tiny-three", "added", "", "1.0"),
        *("tiny-two", "changed", "1.0", "2.0"),
    ]
    assert "tiny-two==2.0" in lock_of(renewable.requirements).read_text()


def test_a_dry_run_of_the_verb_writes_nothing(renewable: EnvironmentSpec) -> None:
    done = CliRunner().invoke(app, ["lock", "tiny", "--dry-run"])

    assert "tiny-two" in done.stdout
    assert not lock_of(renewable.requirements).exists()


def test_present_versions_are_kept_on_request(renewable: EnvironmentSpec, wheels: Path) -> None:
    CliRunner().invoke(app, ["lock", "tiny"])
    write_wheel(wheels, "tiny_two", "2.0")

    CliRunner().invoke(app, ["lock", "tiny", "--keep"])

    assert "tiny-two==1.0" in lock_of(renewable.requirements).read_text()


def test_files_that_differ_under_the_same_version_are_shown() -> None:
    before, after = (f"one==1 \\\n    --hash=sha256:{digit * 64}\n" for digit in "12")

    assert [(each.package, each.kind) for each in changes(before, after)] == [("one", "other files")]


@pytest.mark.parametrize(("spec", "path"), FILES)
def test_every_file_of_our_own_has_a_lock_that_was_made_from_it(spec: EnvironmentSpec, path: Path) -> None:
    assert lock_of(path).exists(), f"run: steptime env lock {spec.name}"
    if path.suffix == ".txt":
        for version in spec.pythons:
            current_lock(path, spec, version)


@pytest.mark.parametrize("path", sorted({path for spec in SPECS.values() for path in spec.requirement_files}))
def test_a_lock_of_our_own_pins_all_that_its_requirements_name(path: Path) -> None:
    lock = lock_of(path).read_text()
    pinned = set(re.findall(r"^(\S+?)==\S.*\\\n    --hash=sha256:", lock, re.MULTILINE))

    named = {re.sub(r"[-_.]+", "-", Requirement(line).name).lower() for line in requirement_lines(path)}

    assert named <= pinned


@pytest.mark.parametrize(("spec", "path"), FILES)
def test_a_lock_of_our_own_names_no_index_and_no_folder(spec: EnvironmentSpec, path: Path) -> None:
    lines = [line for line in lock_of(path).read_text().splitlines() if not line.startswith("# ")]

    assert [line for line in lines if "/" in line or line.startswith("-")] == []
