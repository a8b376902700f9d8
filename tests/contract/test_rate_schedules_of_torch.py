"""Learning-rate schedules against PyTorch's own, where it has the same."""

import pytest
from launching import printed_in

from steptime.study.training import full_parameters
from steptime.worker.rate_schedules import learning_rate

EPOCHS, PER_EPOCH, RATE = 12, 5, 0.3
LOSSES = [1.0, 0.9, 0.9, 0.95, 0.8, 0.81, 0.82, 0.83, 0.84, 0.85, 0.86]
PROGRAM = f"""
import json, torch
from torch.optim import lr_scheduler as s
steps, per = {EPOCHS * PER_EPOCH}, {PER_EPOCH}
makers = {{
    "step": (s.StepLR, dict(step_size=4 * per, gamma=0.1)),
    "multi_step": (s.MultiStepLR, dict(milestones=[3 * per, 7 * per], gamma=0.2)),
    "exponential": (s.ExponentialLR, dict(gamma=0.9 ** (1 / per))),
    "polynomial": (s.PolynomialLR, dict(total_iters=steps, power=2.0)),
    "cosine": (s.CosineAnnealingLR, dict(T_max=steps, eta_min=0.03)),
    "cosine_restarts": (s.CosineAnnealingWarmRestarts, dict(T_0=3 * per, T_mult=2)),
    "one_cycle": (s.OneCycleLR, dict(max_lr={RATE}, total_steps=steps)),
}}
found = {{}}
def optimizer():
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr={RATE}, momentum=0.9)
for name, (maker, chosen) in makers.items():
    own = optimizer()
    schedule = maker(own, **chosen)
    found[name] = []
    for _ in range(steps):
        found[name].append(own.param_groups[0]["lr"])
        own.step()
        schedule.step()
own = optimizer()
schedule = s.ReduceLROnPlateau(own, factor=0.1, patience=2, threshold=1e-4, eps=0.0)
found["plateau"] = []
for loss in {LOSSES}:
    found["plateau"].append(own.param_groups[0]["lr"])
    schedule.step(loss)
print(json.dumps(found))
"""
CHOSEN = {
    "step": {"every_epochs": 4},
    "multi_step": {"at_epochs": [3, 7], "factor": 0.2},
    "exponential": {"factor": 0.9},
    "polynomial": {"power": 2.0},
    "cosine": {"minimum": 0.1},
    "cosine_restarts": {"first_epochs": 3},
    "one_cycle": {},
    "plateau": {"patience": 2},
}


@pytest.fixture(scope="module")
def of_torch():
    return printed_in("pytorch", PROGRAM)


@pytest.mark.parametrize("name", CHOSEN)
def test_a_schedule_has_the_rates_of_pytorch(of_torch, name):
    plan = {
        "epochs": EPOCHS,
        "steps_per_epoch": PER_EPOCH,
        "warmup_steps": 0,
        "learning_rate": RATE,
        "rate_schedule": {"name": name, "parameters": full_parameters(name, CHOSEN[name])},
    }
    if name == "plateau":
        own = [learning_rate(plan, 0, LOSSES[:epoch]) for epoch in range(len(LOSSES))]
    else:
        own = [learning_rate(plan, step) for step in range(EPOCHS * PER_EPOCH)]

    assert own == pytest.approx(of_torch[name], rel=0, abs=1e-12)
