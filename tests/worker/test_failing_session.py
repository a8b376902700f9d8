"""How a session is released after a failure."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from steptime.worker.framework import Framework
from steptime.worker.main import run_process
from steptime.worker.session import Session


class Failing(Session):
    """Fails in its first step, and notes how it is released."""

    def __init__(self) -> None:
        self.released: list[str] = []

    def step(self):
        message = "the first step"
        raise ValueError(message)

    def wait(self):
        """Nothing."""

    loss = parameter_count = output_shape = get_weights = wait

    def facts(self):
        return {"framework_version": "1"}

    def close(self):
        self.released.append("close")


class Aborting(Failing):
    """Has a way of its own to leave others waiting."""

    def abort(self):
        self.released.append("abort")


@pytest.mark.parametrize(("kind", "released"), [(Failing, ["close"]), (Aborting, ["abort"])])
def test_a_failed_session_is_released_once_without_waiting_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Failing], released: list[str]
) -> None:
    """By abort, which is close where nobody would wait; the error is on record."""
    session = kind()
    adapter = SimpleNamespace(FRAMEWORK=Framework(open_session=lambda *_: session))
    monkeypatch.setitem(sys.modules, "steptime.frameworks.failing.adapter", adapter)
    monkeypatch.setitem(sys.modules, "steptime.frameworks.failing", SimpleNamespace(adapter=adapter))
    job = {"framework": "failing", "mode": "check", "schedule": {"rounds": [1]}, "device": "cpu", "precision": "fp32"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert run_process(str(tmp_path / "job.json"), environment={}) == 1
    assert session.released == released
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "worker-0.jsonl").read_text().splitlines()]
    assert kinds == ["process", "session", "error"]


@pytest.mark.parametrize(
    ("role", "mode", "absent"),
    [("server", "time", "serve"), ("server", "net", "serve_back_end"), ("worker", "net", "open_back_end")],
)
def test_a_function_that_the_description_leaves_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, mode: str, absent: str
) -> None:
    adapter = SimpleNamespace(FRAMEWORK=Framework(open_session=lambda *_: Failing()))
    monkeypatch.setitem(sys.modules, "steptime.frameworks.failing.adapter", adapter)
    monkeypatch.setitem(sys.modules, "steptime.frameworks.failing", SimpleNamespace(adapter=adapter))
    (tmp_path / "job.json").write_text(json.dumps({"framework": "failing", "mode": mode}))
    assert run_process(str(tmp_path / "job.json"), environment={"STEPTIME_ROLE": role}) == 1
    error = json.loads((tmp_path / f"{role}-0.jsonl").read_text().splitlines()[-1])
    assert error["message"].startswith(f"FRAMEWORK has no {absent}=, which this launch needs")
