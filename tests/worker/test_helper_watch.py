"""The death of a loader's helper ends its worker at once, whatever has started the helper and waits for it."""

import json
import multiprocessing
import signal
import textwrap
import time
from pathlib import Path

import pytest
from standin import ADAPTER, CORE, Played, fill_standin, find_interpreter, play

HELPED = """
import functools
import multiprocessing
import sys


def serve_batches(end, folder):
    if end == "wait":
        time.sleep(600)
    if end == "raise":
        raise OSError("no batch today")
    if end == "exit":
        return
    time.sleep(0.3)  # as the first batch takes
    sys.stderr.write("this helper goes\\n")
    sys.stderr.flush()
    os.kill(os.getpid(), int(end))


class Helped(StandIn):
    def __init__(self, job, context):
        super().__init__(job, context)
        options, method = self._options, multiprocessing.get_context(self._options["method"])
        self._helpers = []
        if options.get("pool"):
            self._pool = method.Pool(2)
            self._pool.apply_async(serve_batches, (options["end"], context.folder))
            return
        for end in ("wait", options["end"]):
            helper = method.Process(target=serve_batches, args=(end, context.folder), name="loader-%s" % end)
            helper.daemon = True
            helper.start()
            self._helpers.append(helper)

    def step(self):
        super().step()
        if self._options["end"] not in ("exit", "wait"):
            time.sleep(600)
        if self._options["end"] == "wait" and not self._options.get("pool"):
            assert all(helper.is_alive() for helper in self._helpers)

    def close(self):
        for helper in self._helpers:
            helper.terminate()
            helper.join()
        super().close()


FRAMEWORK = Framework(Helped, serve=serve)
"""


def helped(folder: Path, python: Path = CORE, *, processes: int = 2, **options: object) -> Played:
    """Play a worker whose session has helpers, one of which ends as the option ``end`` has it."""
    run = fill_standin(folder, adapter=textwrap.dedent(ADAPTER) + HELPED, **{"method": "fork", **options})
    job = json.loads((run / "job.json").read_text())
    (run / "job.json").write_text(json.dumps({**job, "loader": {"kind": "native", "processes": processes}}))
    return play(python, run)


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_the_death_of_a_helper_ends_a_worker_that_waits_for_it(tmp_path: Path, method: str, pool: bool) -> None:
    began = time.monotonic()
    played = helped(tmp_path, method=method, pool=pool, end=str(int(signal.SIGKILL)))

    assert time.monotonic() - began < 30
    assert played.code == 1
    message = played.record("error")["message"]
    assert "of the loader was ended by SIGKILL; its last line: this helper goes" in message


@pytest.mark.parametrize("version", ["3.6", "3.14"])
def test_the_oldest_and_the_newest_python_see_it(tmp_path: Path, version: str) -> None:
    python = find_interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    assert "ended by SIGKILL" in helped(tmp_path, python, end="9", pool=True).record("error")["message"]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("7", "was ended by SIGBUS; /dev/shm holds "),
        ("39", "was ended by signal 39"),
        ("raise", "ended with exit code 1; its last line: OSError: no batch today"),
    ],
)
def test_a_helper_is_named_with_how_it_ended(tmp_path: Path, end: str, reason: str) -> None:
    message = helped(tmp_path, end=end).record("error")["message"]
    assert message.startswith(f"loader-{end} (process ")
    assert f"of the loader {reason}" in message


@pytest.mark.parametrize("end", ["wait", "exit"])
def test_helpers_that_live_or_end_well_leave_the_worker_alone(tmp_path: Path, end: str) -> None:
    played = helped(tmp_path, end=end)
    assert (played.code, played.kinds[-1]) == (0, "done"), played.stderr


def test_a_worker_has_no_further_thread_when_its_threads_are_counted(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    found = [
        helped(tmp_path / name, end="wait", processes=processes).record("threads")["live_threads"]
        for name, processes in (("with", 2), ("without", 0))
    ]
    assert found[0] == found[1]
