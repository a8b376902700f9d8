"""What Chainer lacks is refused; what it trains, tests/contract looks at."""

from pathlib import Path

import pytest
from launching import check_job, launch

pytestmark = pytest.mark.framework("chainer")


def test_a_communicator_for_other_devices_is_refused(tmp_path: Path) -> None:
    """The message lists what works here."""
    job = check_job("chainer", "allreduce", "lenet5", steps=1, options={"communicator": "pure_nccl"})
    result = launch(tmp_path, job)
    assert "choices: auto, naive" in result.record("error")["message"]


def test_a_precision_that_chainer_lacks_is_refused(tmp_path: Path) -> None:
    """Instead of training in another one."""
    result = launch(tmp_path, check_job("chainer", "single", "lenet5", steps=1, precision="bf16"))
    assert "set precision to fp32" in result.record("error")["message"]
