"""Makers that are killed, interrupted, in each other's way, or out of space: real processes, real signals."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bare_tool import SpecMaker, write_wheel

from steptime.environments.kinds import CachedEnvironment, list_environments, remove
from steptime.environments.spec import BuildContext
from steptime.errors import EnvironmentFailure

_PROGRAM = Path(__file__).with_name("making_program.py")
_PATIENCE_S = 60.0


def _start(cache: Path, spec_of: SpecMaker, verify: str, *names: str) -> "subprocess.Popen[str]":
    command = [sys.executable, _PROGRAM, cache, spec_of().requirements, verify, *names]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for never happened"
        time.sleep(0.02)


def _sleeper(proofs: Path) -> str:
    """Code that verifies, says under which process number it does, and does not end."""
    proofs.mkdir()
    return f"import os, time; open({str(proofs)!r} + '/%d' % os.getpid(), 'w').close(); time.sleep(600)"


def _gone(proofs: Path) -> bool:
    return not any(_alive(int(proof.name)) for proof in proofs.iterdir())


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def killed(cache: Path, spec_of: SpecMaker, tmp_path: Path) -> Path:
    """Kill a maker that has installed everything and is verifying; return where its verifiers left their numbers."""
    proofs = tmp_path / "proofs"
    maker = _start(cache, spec_of, _sleeper(proofs), "tiny")
    _until(lambda: any(proofs.iterdir()))
    maker.kill()
    maker.communicate()
    return proofs


@pytest.mark.usefixtures("killed")
def test_what_a_killed_maker_left_is_not_taken_for_an_environment(
    cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    assert [each.ready for each in list_environments(cache)] == [False]
    assert bare.find_ready(spec_of(kind="bare"), cache) is None


@pytest.mark.usefixtures("killed")
def test_an_environment_whose_maker_was_killed_is_made_by_the_next(
    cache: Path, spec_of: SpecMaker, bare: CachedEnvironment
) -> None:
    half = list_environments(cache)[0].folder
    (half / "stale").touch()

    ready = bare.create(spec_of(kind="bare"), BuildContext(cache))

    assert ready.folder == half
    assert not (half / "stale").exists()


def test_what_a_killed_maker_started_dies_with_it(killed: Path) -> None:
    _until(lambda: _gone(killed))


def test_an_interrupted_maker_of_several_leaves_nothing_and_no_process(
    cache: Path, spec_of: SpecMaker, tmp_path: Path
) -> None:
    proofs = tmp_path / "proofs"
    maker = _start(cache, spec_of, _sleeper(proofs), "one", "two", "three", "four")
    _until(lambda: len(list(proofs.iterdir())) == 3)

    maker.send_signal(signal.SIGINT)
    said, _ = maker.communicate(timeout=_PATIENCE_S)

    assert maker.returncode != 0
    assert "four creating" not in said
    assert list_environments(cache) == []
    _until(lambda: _gone(proofs))


@pytest.mark.sampled
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_what_an_installer_started_ends_with_its_maker_and_before_the_lock_is_free(
    number: signal.Signals, cache: Path, spec_of: SpecMaker, tmp_path: Path
) -> None:
    proofs = tmp_path / "proofs"
    child = _sleeper(proofs)
    verify = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    maker = _start(cache, spec_of, verify, "tiny")
    _until(lambda: any(proofs.iterdir()))
    temporary = Path(f"/proc/{next(proofs.iterdir()).name}/environ").read_bytes().split(b"TMPDIR=")[1].split(b"\0")[0]
    maker.send_signal(number)
    maker.communicate(timeout=_PATIENCE_S)

    (folder,) = {path.parent for path in cache.glob("environments/.locks/*")}
    descriptor = os.open(next(folder.iterdir()), os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert _gone(proofs)
    os.close(descriptor)
    assert not Path(temporary.decode()).exists()


@pytest.mark.parametrize("whole", [True, False])
def test_an_installer_dies_with_its_killed_supervisor(
    whole: bool, cache: Path, spec_of: SpecMaker, tmp_path: Path
) -> None:
    """With all that it started, where the maker still runs."""
    proofs = tmp_path / "proofs"
    proof = f"import os, time; open({str(proofs)!r} + '/%d' % os.getpid(), 'w').close()"
    child = _sleeper(proofs)
    verify = f"{proof}; import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    maker = _start(cache, spec_of, verify if whole else child, "tiny")
    _until(lambda: len(list(proofs.iterdir())) == 1 + whole)
    numbers = [int(each.name) for each in proofs.iterdir()]
    (supervisor,) = {_parent(number) for number in numbers} - set(numbers)
    if not whole:
        maker.send_signal(signal.SIGSTOP)

    os.kill(supervisor, signal.SIGKILL)
    _until(lambda: _gone(proofs))

    maker.send_signal(signal.SIGCONT)
    said, _ = maker.communicate(timeout=_PATIENCE_S)
    assert maker.returncode != 0
    assert "tiny failed" in said


def test_two_makers_at_once_make_one_environment(cache: Path, spec_of: SpecMaker, tmp_path: Path) -> None:
    proof = tmp_path / "verified"
    verify = f"import time; open({str(proof)!r}, 'a').write('x'); time.sleep(1)"
    makers = [_start(cache, spec_of, verify, "tiny") for _ in range(2)]

    said = [maker.communicate(timeout=_PATIENCE_S)[0] for maker in makers]

    assert [maker.returncode for maker in makers] == [0, 0], said
    assert proof.read_text() == "x"


def test_an_environment_in_the_making_is_not_removed(cache: Path, spec_of: SpecMaker, tmp_path: Path) -> None:
    proofs = tmp_path / "proofs"
    maker = _start(cache, spec_of, _sleeper(proofs), "tiny")
    try:
        _until(lambda: any(proofs.iterdir()))

        with pytest.raises(EnvironmentFailure, match="another process is making"):
            remove("tiny", cache)
    finally:
        maker.kill()
        maker.communicate()


@pytest.mark.costly
@pytest.mark.parametrize("size", ["512k", "48m"])
def test_a_full_disk_is_named_with_the_remedy(size: str, cache: Path, spec_of: SpecMaker, tmp_path: Path) -> None:
    cache.mkdir()
    write_wheel(tmp_path / "wheels", "big", code=f"# {'x' * 60_000_000}\n")
    script = (
        "import sys; from pathlib import Path; from steptime.environments.kinds import create, EnvironmentSpec\n"
        "spec = EnvironmentSpec('tiny', Path(sys.argv[2]), ['%d.%d' % sys.version_info[:2]])\n"
        "create(spec, cache=Path(sys.argv[1]))"
    )
    # The disk is a small one of memory, seen by this one process only.
    inner = f'mount -t tmpfs -o size={size} tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    arguments = [str(cache), sys.executable, script, str(spec_of("big").requirements)]

    done = subprocess.run(
        [unshare, "-rm", "sh", "-c", inner, "sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )

    assert "EnvironmentFailure" in done.stderr
    assert "A disk was full" in done.stderr
    assert "STEPTIME_CACHE" in done.stderr
