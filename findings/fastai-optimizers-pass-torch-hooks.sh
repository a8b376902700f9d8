#!/bin/sh
# fastai 2.8.12 with torch 2.13.0: fastai's own optimizers, its default, are no torch.optim.Optimizer, so that none of
# torch's signs of an update is seen: not the hooks of all optimizers (register_optimizer_step_post_hook), by which
# profilers count iterations, nor the profiler's Optimizer.step ranges. The weights change all the same.
# Seen, 8 updates: 0 hooks and 0 ranges with fastai's Adam, 8 and 8 with torch's SGD in OptimWrapper.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 fastai==2.8.12 fastcore==2.2.41
cat > "$folder/check.py" <<'PY'
import fastai
import torch
from fastai.basics import DataLoaders, Learner
from fastai.callback.progress import ProgressCallback
from fastai.optimizer import Adam, OptimWrapper
from torch.optim.optimizer import register_optimizer_step_post_hook

UPDATES = 8
hooked = []
register_optimizer_step_post_hook(lambda optimizer, args, kwargs: hooked.append(optimizer))


def signs(make_optimizer):
    """Return how many hooks were called and how many ranges the profiler has, of a training that changes weights."""
    torch.manual_seed(0)
    inputs = torch.randn(8 * UPDATES, 4)
    pairs = list(zip(inputs, inputs.sum(1, keepdim=True)))
    network = torch.nn.Linear(4, 1)
    before = network.weight.detach().clone()
    data = DataLoaders.from_dsets(pairs, pairs[:8], bs=8, device="cpu")
    learner = Learner(data, network, loss_func=torch.nn.MSELoss(), opt_func=make_optimizer)
    hooked.clear()
    with torch.profiler.profile() as profile, learner.removed_cbs(learner.cbs.filter(lambda each: isinstance(each, ProgressCallback))):
        learner.fit(1)
    assert not torch.equal(before, network.weight)
    ranges = sum(each.count for each in profile.key_averages() if each.key.startswith("Optimizer.step"))
    return len(hooked), ranges


own = signs(Adam)
torchs = signs(lambda parameters, **options: OptimWrapper(parameters, torch.optim.SGD, **options))
print("fastai", fastai.__version__, "own Adam: %d hooks, %d ranges;" % own, "torch's SGD: %d, %d" % torchs)
assert own == (0, 0), own
assert torchs == (UPDATES, UPDATES), torchs
PY
cd "$folder"
venv/bin/python -W ignore check.py
