"""The stages of a step in torch that a breakdown takes away; torch itself is not needed to list them."""

from types import SimpleNamespace

import pytest

from steptime.libraries.torch.ablation import TorchAblation


def stages(device, *, anew):
    """Return the names of the stages of one worker, whose forward pass alone is recorded ``anew`` or not."""
    strategy = SimpleNamespace(
        context=SimpleNamespace(workers=1),
        compilation=SimpleNamespace(records_forward_anew=anew),
        device=SimpleNamespace(torch_device=SimpleNamespace(type=device)),
        update=lambda _: None,
    )
    ablation = TorchAblation(strategy)

    class Batches:
        def __next__(self):
            return 0, 0

        def copies(self):
            return self

    ablation.attach(SimpleNamespace(batches=Batches(), loss=lambda *_: None))
    return set(ablation.stages())


def test_passes_that_are_replayed_as_graphs_are_not_run_forward_alone():
    """Each such pass records its graph anew, which takes 35 times as long as replaying it."""
    assert stages("cuda", anew=True) == {"backward", "local", "input", "h2d"}


@pytest.mark.parametrize(("device", "further"), [("cuda", {"h2d"}), ("cpu", set())])
def test_all_other_passes_are(device, further):
    assert stages(device, anew=False) == {"forward", "backward", "local", "input", *further}
