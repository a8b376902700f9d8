"""Passes with gradients that nothing is trained by, in real PyTorch: evaluations without a loader, and failed ones."""

import pytest
from alone_and_attached import record_of, records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), 1e-3)

def residual(n):
    x = torch.rand(n, 2, requires_grad=True)
    slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return ((slope[:, 1] - slope[:, 0]) ** 2).mean()

def penalty(n):
    x = torch.rand(n, 2, requires_grad=True)
    out = net(x)
    slope, = torch.autograd.grad(out.sum(), x, create_graph=True)
    return (out ** 2).mean() + slope.norm()

def plain(n):
    return (net(torch.rand(n, 2)) ** 2).mean()

def learn(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
EVALUATED = {
    "residuals": ("residual(16)", "residual(64).item()"),
    "penalties on inputs": ("penalty(16)", "penalty(64).item()"),
    "losses": ("plain(16)", "plain(64).item()"),
    "two residuals of a step": ("residual(16) + penalty(16)", "(residual(64) + plain(64)).item()"),
}


def run(folder, script):
    """Run ``script`` alone and attached; return the lines of its steps."""
    ended = "\nprint(*(f'{each.sum():.9f}' for each in net.parameters()))"
    lines = record_of(folder, "pytorch", BEGIN + script + ended)
    return [line for line in lines if line["kind"] == "step"]


@pytest.mark.parametrize("name", EVALUATED)
def test_an_evaluation_with_gradients_and_without_a_loader_is_apart(tmp_path, name):
    loss, evaluated = EVALUATED[name]
    loop = f"""
for i in range(40):
    if i % 10 == 9:
        sum({evaluated} for _ in range(20))
    learn({loss})
"""
    steps = run(tmp_path, loop)
    assert len(steps) == 40
    assert [step["number"] for step in steps if "apart" in step] == [9, 19, 29, 39]


def test_episodes_of_several_lengths_are_the_steps_own(tmp_path):
    steps = run(tmp_path, "for i in range(40): learn(sum([plain(4) for _ in range(2 + i * 7 % 11)]))")
    assert (len(steps), [step for step in steps if "apart" in step]) == (40, [])


def test_losses_of_differing_number_that_go_back_one_by_one_are_all_the_steps_own(tmp_path):
    loop = """
for i in range(40):
    optimizer.zero_grad()
    for loss in [plain(4) for _ in range(2 + i * 7 % 5)]:
        loss.backward()
    optimizer.step()
"""
    steps = run(tmp_path, loop)
    assert [step["micro_steps"] for step in steps] == [2 + i * 7 % 5 for i in range(40)]
    assert [step for step in steps if "apart" in step or "left_out" in step] == []


FAILING = """
class Tried(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls = net, 0

    def forward(self, x):
        self.calls += 1
        if fails(x, self.calls):
            raise RuntimeError("out of memory")
        return self.net(x)

class Break(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("out of memory")

tried, data = Tried(), TensorDataset(torch.rand(320, 2))
"""
FAILED = {
    "smaller batches of a new loader": """
fails, size = lambda x, calls: len(x) > 16, 64
while True:
    try:
        for (x,) in DataLoader(data, size):
            learn(tried(x).mean())
        break
    except RuntimeError:
        size //= 2
""",
    "halves of the batch": """
fails = lambda x, calls: calls % 7 == 6 and len(x) > 8
for (x,) in DataLoader(data, 16):
    try:
        learn(tried(x).mean())
    except RuntimeError:
        learn(sum(tried(half).mean() for half in x.chunk(2)))
""",
    "a batch left out behind a forward": """
fails = lambda x, calls: calls % 7 == 6
for (x,) in DataLoader(TensorDataset(torch.rand(368, 2)), 16):
    try:
        learn(tried(x).mean())
    except RuntimeError:
        continue
""",
    "a batch left out behind a backward": """
fails = lambda x, calls: False
for i, (x,) in enumerate(DataLoader(TensorDataset(torch.rand(368, 2)), 16)):
    try:
        learn((Break.apply(tried(x)) if i % 7 == 5 else tried(x)).mean())
    except RuntimeError:
        continue
""",
}


LEFT_OUT_BEGIN = """
data = TensorDataset(torch.rand(320, 2))

losses = []

def train(leaves_out, kept=1, note=lambda loss: None):
    had = 0
    for _ in range(3):
        for i, (x,) in enumerate(DataLoader(data, 16)):
            loss = net(x).mean()
            note(loss)
            if leaves_out(i):
                continue
            loss.backward()
            had += 1
            if had % kept == 0:
                optimizer.step()
                optimizer.zero_grad()
"""
LEFT_OUT = {
    "every fourth batch": ("train(lambda i: i % 4 == 3)", 45, 14),  # no step follows the last one
    "every second batch": ("train(lambda i: i % 2 == 0)", 30, 30),
    "the first of each epoch": ("train(lambda i: i == 0)", 57, 3),
    "the last of each epoch": ("train(lambda i: i == 19)", 57, 2),
    "several in a row": ("train(lambda i: 6 < i < 11)", 48, 12),
    "some now and then": ("train(lambda i: i * i % 11 == 5)", 48, 12),
    "some, with all losses in a list": ("train(lambda i: i % 7 == 3, note=losses.append)", 51, 9),
    "several in a row, with all losses in a list": ("train(lambda i: 6 < i < 11, note=losses.append)", 48, 12),
    "one of a micro-step": ("train(lambda i: i % 5 == 1, kept=2)", 24, 12),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_batch_left_out_behind_its_forward_is_no_evaluation_and_no_sample(tmp_path, name):
    loop, count, left_out = LEFT_OUT[name]
    steps = run(tmp_path, LEFT_OUT_BEGIN + loop)
    assert len(steps) == count
    assert {step["samples"] for step in steps} == {32 if "kept" in loop else 16}
    assert [step for step in steps if "apart" in step] == []
    assert sum(step.get("left_out", 0) for step in steps) == left_out


ANEW_BEGIN = (
    BEGIN
    + """
new = lambda rows=320: DataLoader(TensorDataset(torch.rand(rows, 2)), 16)
held_out = new(64)

def train(leaves_out, evaluate=lambda: None):
    for _ in range(3):
        for i, (x,) in enumerate(new()):
            loss = net(x).mean()
            if i not in leaves_out:
                learn(loss)
        evaluate()

def look(loader):
    for (x,) in loader:
        net(x).mean().item()

def look_without(loader):
    with torch.no_grad():
        look(loader)
"""
)
LEFT_OUT_ANEW = {
    "the first": ("train({0})", 57, 3, 0),
    "the last": ("train({19})", 57, 2, 0),
    "the first and the last": ("train({0, 19})", 54, 5, 0),
    "the first five": ("train({0, 1, 2, 3, 4})", 45, 15, 0),
    "the last, evaluated": ("train({19}, lambda: look_without(new(64)))", 57, 2, 2),
    "the last, evaluated by a known loader": ("train({19}, lambda: look_without(held_out))", 57, 2, 2),
    "the first and the last, evaluated": ("train({0, 7, 19}, lambda: look_without(new(64)))", 51, 8, 2),
    "the first two, evaluated with gradients": ("train({0, 1}, lambda: look(new(64)))", 54, 6, 2),
    "the first, evaluated with gradients by a known loader": ("train({0}, lambda: look(held_out))", 57, 3, 2),
}


@pytest.fixture(scope="module")
def left_out_anew(tmp_path_factory):
    scripts = {name: loop for name, (loop, _, _, _) in LEFT_OUT_ANEW.items()}
    found = records_of(tmp_path_factory.mktemp("anew"), "pytorch", ANEW_BEGIN, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", LEFT_OUT_ANEW)
def test_batches_left_out_of_a_new_data_set_are_no_evaluation_beside_which_one_is(left_out_anew, name):
    _, count, left_out, evaluated = LEFT_OUT_ANEW[name]
    steps = left_out_anew[name]
    assert [step["samples"] for step in steps] == [16] * count
    assert sum(step.get("left_out", 0) for step in steps) == left_out
    assert sum("apart" in step for step in steps) == evaluated
    if "known" not in name:
        assert [step for step in steps if "evaluated" in step.get("flags", [])] == []


BY_HAND_BEGIN = (
    BEGIN
    + """
x, losses = torch.rand(640, 2), []

def train(leaves_out, evaluate=lambda: None, note=lambda loss: None):
    for i in range(40):
        loss = net(x[i * 16:i * 16 + 16]).mean()
        note(loss)
        if leaves_out(i):
            continue
        learn(loss)
        if i % 10 == 9:
            evaluate()

def look():
    for i in range(3):
        losses[:] = [net(x[:64]).mean()]
"""
)
BY_HAND = {
    "some now and then": ("train(lambda i: i * i % 11 == 5)", 33, 7, 0),
    "every third batch": ("train(lambda i: i % 3 == 1)", 27, 13, 0),
    "several in a row": ("train(lambda i: 6 < i < 11)", 36, 4, 0),
    "some, with all losses in a list": ("train(lambda i: i % 9 == 4, note=losses.append)", 36, 4, 0),
    "none, one evaluated whose loss is kept": (
        "train(lambda i: False, lambda: losses.append(net(x[:64]).mean()))",
        40,
        0,
        3,
    ),
    "none, evaluated whose latest loss is kept": ("train(lambda i: False, look)", 40, 0, 3),
}


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    scripts = {name: loop for name, (loop, _, _, _) in BY_HAND.items()}
    found = records_of(tmp_path_factory.mktemp("by_hand"), "pytorch", BY_HAND_BEGIN, scripts)
    return {name: [line for line in lines if line["kind"] == "step"] for name, lines in found.items()}


@pytest.mark.parametrize("name", BY_HAND)
def test_without_a_loader_batches_left_out_are_told_from_an_evaluation_by_where_they_go_forward(by_hand, name):
    _, count, left_out, evaluated = BY_HAND[name]
    steps = by_hand[name]
    assert [step["samples"] for step in steps[1:]] == [16] * (count - 1)
    assert (len(steps), sum(step.get("left_out", 0) for step in steps)) == (count, left_out)
    assert sum("apart" in step for step in steps) == evaluated


EVALUATED_IN_TRAINING_MODE = {
    "a whole epoch": "for (x,) in loader: net(x).mean().item()",
    "a few batches": "for (x,), _ in zip(loader, range(3)): net(x).mean().item()",
    "one batch": "net(next(iter(loader))[0]).mean().item()",
}


@pytest.mark.parametrize("name", EVALUATED_IN_TRAINING_MODE)
def test_an_evaluation_by_the_trainings_own_loader_is_apart(tmp_path, name):
    loop = f"""
loader = DataLoader(TensorDataset(torch.rand(320, 2)), 16)
for _ in range(2):
    for i, (x,) in enumerate(loader):
        learn(net(x).mean())
        if i == 11:
            {EVALUATED_IN_TRAINING_MODE[name]}
"""
    steps = run(tmp_path, loop)
    assert [step["samples"] for step in steps] == [16] * 40
    assert [step["number"] - 1 for step in steps if "apart" in step] == [11, 31]


@pytest.mark.parametrize("name", FAILED)
def test_passes_that_failed_are_no_evaluation_and_their_batches_not_counted(tmp_path, name):
    steps = run(tmp_path, FAILING + FAILED[name])
    assert len(steps) == 20
    assert {step["samples"] for step in steps} == {16}
    assert [step for step in steps if "apart" in step] == []
    assert {step["micro_steps"] for step in steps} == {1}


ROUNDS = """
actor, critic, features = (torch.nn.Linear(2, outputs) for outputs in (2, 1, 2))
updates = torch.optim.SGD(critic.parameters(), 0.01), torch.optim.SGD(actor.parameters(), 0.01)
states = torch.rand(256, 2)
for i in range(60):
    with torch.no_grad():
        actor(states[:1])
        wanted = critic(actor(states[:64]))
    updates[0].zero_grad()
    (critic(states[:64]) - wanted).pow(2).mean().backward()
    updates[0].step()
    if i % 2:
        acted = actor(states[:64])
        with torch.no_grad():
            seen = features(states[:64])
        updates[1].zero_grad()
        critic(acted + seen).mean().backward()
        updates[1].step()
print(sum(each.sum() for each in actor.parameters()))
"""


def test_a_pass_without_gradient_inside_of_a_round_is_not_apart_with_what_follows(tmp_path):
    """As of TD3's actor: what is apart lasts as long as its parts, so that the step's parts are no longer than it."""
    steps = run(tmp_path, ROUNDS)
    rounds = [line for line in steps if line["optimizers"] == [0, 0, 1]]
    assert len(rounds) > 20
    for line in rounds:
        apart = line["apart"]
        parts = sum(apart["regions"].values()) + sum(apart["gaps"].values())
        assert apart["end_ns"] - apart["begin_ns"] <= parts + 1000
        assert line["regions"]["nograd"] > 0


LOOKED_AT = {
    "one of four left out": ("i % 4 == 3", 0, 96, []),
    "most left out": ("i % 8 > 2", 0, 48, []),
    "the first left out": ("i < 20", 0, 108, []),
    "one of four left out, and evaluations of others": ("i % 4 == 3", 20, 96, [9, 24, 39, 54, 69, 84]),
}


@pytest.mark.parametrize("name", LOOKED_AT)
def test_batches_that_are_left_out_behind_a_look_without_gradient_are_no_evaluation(tmp_path, name):
    left_out, every, count, evaluated = LOOKED_AT[name]
    loop = f"""
def look(x):
    with torch.no_grad(): net(x)

for i in range(128):
    x = torch.rand(16, 2)
    look(x)
    if {left_out}:
        continue
    learn(net(x).pow(2).mean())
    if {every} and i % {every or 1} == 10:
        for _ in range(3): torch.no_grad()(net)(torch.rand(16, 2))
"""
    steps = run(tmp_path, loop)
    assert [step["samples"] for step in steps] == [16] * count
    assert [step["number"] for step in steps if "apart" in step] == evaluated  # those behind one


@pytest.mark.parametrize(
    "batches", ["[(torch.rand(16, 2),) for _ in range(12)]", "DataLoader(TensorDataset(torch.rand(192, 2)), 16)"]
)
@pytest.mark.parametrize("evaluated", ["[torch.rand(16, 2)] * 4", "[torch.rand(64, 2)]"])
def test_a_network_that_stays_in_evaluation_mode_behind_an_evaluation_is_trained_so(tmp_path, batches, evaluated):
    loop = f"""
for _ in range(4):
    for (x,) in {batches}:
        learn(net(x).pow(2).mean())
    net.eval()
    with torch.no_grad():
        for x in {evaluated}: net(x)
"""
    steps = run(tmp_path, loop)
    assert len(steps) == 48
    assert sum("apart" in step for step in steps) == 3
    assert sum("forward" not in step["regions"] for step in steps) <= 1  # until an update shows it
