"""A worker holds its environment against what the study set."""

import pytest

from steptime.worker.main import require_variables


def job(**variables: str) -> dict[str, object]:
    return {"framework": "mxnet", "environment_variables": variables}


def test_a_value_that_is_there_is_accepted(monkeypatch):
    monkeypatch.setenv("OMP_SCHEDULE", "auto")

    require_variables(job(OMP_SCHEDULE="auto"))


def test_a_value_to_which_the_adapter_added_is_accepted(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--a --xla_cpu_multi_thread_eigen=false")

    require_variables(job(XLA_FLAGS="--a"))


@pytest.mark.parametrize("found", ["static", None])
def test_a_value_that_the_adapter_replaced_fails_the_launch_with_both(monkeypatch, found):
    monkeypatch.delenv("OMP_SCHEDULE", raising=False)
    if found is not None:
        monkeypatch.setenv("OMP_SCHEDULE", found)

    with pytest.raises(RuntimeError, match=f"sets OMP_SCHEDULE to 'auto', and mxnet has changed it to {found!r}"):
        require_variables(job(OMP_SCHEDULE="auto"))
