"""What the runner makes ready before anything is launched."""

import sys
from pathlib import Path

from trials import trial

from steptime.runner.preparation import loader_of, ready_interpreter


def test_the_reference_framework_is_always_ready() -> None:
    assert ready_interpreter("reference") == Path(sys.executable)


def test_synthetic_batches_need_no_dataset() -> None:
    assert loader_of(trial(loader="synthetic"), {}) == {"kind": "synthetic", "distinct_batches": 1}


def test_a_framework_without_a_room_has_no_interpreter(tmp_path: Path) -> None:
    assert ready_interpreter("no-such-framework", tmp_path) is None
