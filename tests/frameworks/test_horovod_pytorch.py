"""What Horovod does to PyTorch's tensors."""

from pathlib import Path

import pytest
from launching import check_job, launch_ok, printed_in
from test_horovod_controllers import SETTINGS, distance, normed, oracle

pytestmark = pytest.mark.framework("horovod_pytorch")


def test_gradients_with_innermost_channels_are_shown_and_not_copied() -> None:
    """Contiguous to Horovod, and in their own shape and memory afterwards."""
    code = """
import torch
from steptime.frameworks.horovod_pytorch.strategies import InnermostChannels
gradient = torch.randn(4, 3, 2, 2).contiguous(memory_format=torch.channels_last)
shown, moved = InnermostChannels.compress(gradient)
back = InnermostChannels.decompress(shown, moved)
print(json.dumps([
    moved, shown.is_contiguous(), shown.data_ptr() == gradient.data_ptr(),
    back.data_ptr() == gradient.data_ptr(), back.stride() == gradient.stride(), bool((back == gradient).all()),
]))
"""
    assert printed_in("horovod_pytorch", code) == [True] * 6


@pytest.mark.parametrize("channels_last", ["yes", "no"])
def test_the_layout_of_gradients_does_not_change_what_is_trained(tmp_path: Path, channels_last: str) -> None:
    """Both give the weights of the oracle."""
    job = check_job(
        "horovod_pytorch",
        "allreduce",
        normed(),
        workers=2,
        optimizer=SETTINGS,
        options={"channels_last": channels_last},
    )
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert distance(result, oracle(tmp_path, normed(), 2)) < 1e-4
    assert result.record("session")["facts"]["channels_last"] == (channels_last == "yes")


def test_mixed_precision_averages_in_full(tmp_path: Path) -> None:
    """Gradients are float32 under autocast too; weights are near those of full precision."""
    job = check_job("horovod_pytorch", "allreduce", normed(), workers=2, optimizer=SETTINGS, precision="bf16")
    assert distance(launch_ok(tmp_path, job, workers=2, preloaded=True), oracle(tmp_path, normed(), 2)) < 0.05
