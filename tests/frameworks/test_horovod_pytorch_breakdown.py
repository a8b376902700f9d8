"""What Horovod shows of its own exchanges in marked steps."""

import pytest
from ablating import breakdown, by_step
from launching import library_workload

pytestmark = pytest.mark.framework("horovod_pytorch")


def test_compressed_gradients_are_half_as_large_on_their_way(tmp_path):
    sizes = {}
    for compression in ("none", "fp16"):
        options = {"compression": compression}
        seen, _ = breakdown(tmp_path, "horovod_pytorch", "allreduce", options=options)
        assert {"forward", "backward", "local", "exchange", "communication"} <= set(seen["stages"])
        sizes[compression] = {name: size for name, size, _, _ in seen["transfers"]}
    assert sizes["none"] == {name: 2 * size for name, size in sizes["fp16"].items()} != {}


def test_horovod_sends_every_gradient_by_its_name_in_each_step(tmp_path):
    names = {parameter.name for layer in library_workload("lenet5").layers for parameter in layer.parameters}
    for seen in breakdown(tmp_path, "horovod_pytorch", "allreduce"):
        for ends, pieces in by_step(seen):
            assert len({piece[0] for piece in pieces}) == len(pieces) == len(names)
            assert pieces[0][2] < ends["backward"]
            assert all(done <= ends["exchange"] for _, _, _, done in pieces)
