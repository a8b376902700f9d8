"""Backward passes whose gradients no update uses, in real PyTorch: the step's own work, and no accumulation."""

import pytest
from alone_and_attached import NETWORK, records_of

pytestmark = pytest.mark.framework("pytorch")
BEGIN = (
    NETWORK
    + """
loader = DataLoader(TensorDataset(torch.randn(192, 8), torch.randint(0, 4, (192,))), 16)

def learn(x, y):
    optimizer.zero_grad()
    cross_entropy(net(x), y).backward()
    optimizer.step()
"""
)
DROPPED = {
    "FGSM": (
        1,
        """
for x, y in loader:
    x.requires_grad_()
    cross_entropy(net(x), y).backward()
    learn((x + 0.1 * x.grad.sign()).detach(), y)
""",
    ),
    "PGD in evaluation mode": (
        3,
        """
for x, y in loader:
    net.eval()
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
        cross_entropy(net(x + delta), y).backward()
        delta.data += 0.02 * delta.grad.sign()
        delta.grad.zero_()
    net.train()
    learn((x + delta).detach(), y)
""",
    ),
    "gradients that are cleared to zero": (
        1,
        """
for x, y in loader:
    x.requires_grad_()
    cross_entropy(net(x), y).backward()
    optimizer.zero_grad(set_to_none=False)
    cross_entropy(net(x + 0.1 * x.grad), y).backward()
    optimizer.step()
    net.zero_grad(set_to_none=False)
""",
    ),
    "gradients that are cleared by hand": (
        1,
        """
for x, y in loader:
    x.requires_grad_()
    cross_entropy(net(x), y).backward()
    for each in net.parameters():
        each.grad = None
    learn((x + 0.1 * x.grad).detach(), y)
""",
    ),
    "weights that are frozen": (
        2,
        """
for x, y in loader:
    net.requires_grad_(False)
    x.requires_grad_()
    for _ in range(2):
        cross_entropy(net(x), y).backward()
    net.requires_grad_(True)
    learn((x + 0.1 * x.grad.sign()).detach(), y)
""",
    ),
    "a pass for inputs alone": (
        1,
        """
for x, y in loader:
    x.requires_grad_()
    optimizer.zero_grad()
    cross_entropy(net(x), y).backward(inputs=[x])
    cross_entropy(net(x + 0.1 * x.grad), y).backward()
    optimizer.step()
""",
    ),
    "a saliency map behind the update": (
        1,
        """
for x, y in loader:
    learn(x, y)
    net.eval()
    seen = x.clone().requires_grad_()
    net(seen).max(1).values.sum().backward()
    net.train()
""",
    ),
    "gradients of the first pass that are added to those of a second of the same batch": (
        1,
        """
for x, y in loader:
    x.requires_grad_()
    cross_entropy(net(x), y).backward()
    first = [each.grad for each in net.parameters()]
    optimizer.zero_grad()
    cross_entropy(net((x + 0.1 * x.grad).detach()), y).backward()
    for each, other in zip(net.parameters(), first):
        each.grad = each.grad + 0.5 * other
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    "sharpness-aware minimization": (
        1,
        """
class Sharp(torch.optim.Optimizer):
    def __init__(self, base):
        self.base = base
        super().__init__(net.parameters(), {})

    @torch.no_grad()
    def step(self, closure):
        moves = [0.05 * each.grad for each in net.parameters()]
        for each, move in zip(net.parameters(), moves):
            each.add_(move)
        self.zero_grad()
        with torch.enable_grad():
            closure()
        for each, move in zip(net.parameters(), moves):
            each.sub_(move)
        self.base.step()

sharp = Sharp(optimizer)
for x, y in loader:
    sharp.zero_grad()
    cross_entropy(net(x), y).backward()
    sharp.step(lambda: cross_entropy(net(x), y).backward())
""",
    ),
}
USED = {
    "gradients of parts of a batch that are added up elsewhere": (
        4,
        """
for x, y in loader:
    sums = [torch.zeros_like(each) for each in net.parameters()]
    for part, labels in zip(x.split(4), y.split(4)):
        optimizer.zero_grad()
        cross_entropy(net(part), labels).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        torch._foreach_add_(sums, [each.grad for each in net.parameters()])
    for each, total in zip(net.parameters(), sums):
        each.grad = total / 4
    optimizer.step()
""",
    ),
    "gradients of batches that an optimizer adds up elsewhere": (  # as Opacus does it
        4,
        """
class Private:
    skipped, calls, sums = False, 0, None

    def step(self):
        own = [each.grad.clone() for each in net.parameters()]
        self.sums = own if self.sums is None else torch._foreach_add(self.sums, own)
        self.calls += 1
        self.skipped = self.calls % 4 != 0
        if not self.skipped:
            for each, total in zip(net.parameters(), self.sums):
                each.grad = total + 0.01
            optimizer.step()

    def zero_grad(self):
        self.sums = self.sums if self.skipped else None
        optimizer.zero_grad(set_to_none=False)

private = Private()
for x, y in loader:
    private.zero_grad()
    cross_entropy(net(x), y).backward()
    private.step()
""",
    ),
    "gradients that an optimizer puts in place in its own step, behind a last clearing": (
        4,
        """
class Summing(torch.optim.SGD):
    sums = None

    def take(self):
        own = [each.grad.clone() for each in net.parameters()]
        self.sums = own if self.sums is None else torch._foreach_add(self.sums, own)
        self.zero_grad()

    def step(self):
        for each, total in zip(net.parameters(), self.sums):
            each.grad = total
        super().step()
        self.sums = None

summing = Summing(net.parameters(), 0.05)
for i, (x, y) in enumerate(loader):
    cross_entropy(net(x), y).backward()
    summing.take()
    if i % 4 == 3:
        summing.step()
""",
    ),
    **{
        f"gradients of batches that are put back in place: {way}": (
            4,
            f"""
weights = list(net.parameters())
sums = [torch.zeros_like(each) for each in weights]
for i, (x, y) in enumerate(loader):
    cross_entropy(net(x), y).backward()
    torch._foreach_add_(sums, [each.grad for each in weights])
    if i % 4 == 3:
        {code}
        torch._foreach_zero_(sums)
        optimizer.step()
    optimizer.zero_grad()
""",
        )
        for way, code in {
            "copied": "for each, total in zip(weights, sums): each.grad.copy_(total)",
            "copied without autograd": "for each, total in zip(weights, sums): each.grad.data.copy_(total)",
            "copied together": "torch._foreach_copy_([each.grad for each in weights], sums)",
            "added and clipped": """for each, total in zip(weights, sums): each.grad.zero_().add_(total, alpha=0.25)
        torch.nn.utils.clip_grad_norm_(weights, 0.01)""",
        }.items()
    },
    "accumulation": (
        4,
        """
for i, (x, y) in enumerate(loader):
    cross_entropy(net(x), y).backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
""",
    ),
    "L-BFGS": (
        4,
        """
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4, tolerance_grad=0, tolerance_change=0)
for x, y in loader:
    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        return loss
    optimizer.step(closure)
""",
    ),
    "updates inside of the backward pass": (
        1,
        """
optimizers = {each: torch.optim.SGD([each], 0.05) for each in net.parameters()}
def update(each):
    optimizers[each].step()
    optimizers[each].zero_grad()
for each in net.parameters():
    each.register_post_accumulate_grad_hook(update)
for x, y in loader:
    cross_entropy(net(x), y).backward()
""",
    ),
    "two networks": (
        2,
        """
other = torch.nn.Linear(8, 4)
second = torch.optim.SGD(other.parameters(), 0.05)
for x, y in loader:
    optimizer.zero_grad()
    cross_entropy(net(x), y).backward()
    second.zero_grad()
    cross_entropy(other(x) + net(x).detach(), y).backward()
    optimizer.step()
    second.step()
""",
    ),
}


@pytest.fixture(scope="module")
def passes(tmp_path_factory):
    """Micro-steps and dropped passes of the steps of each script, once where all have as many."""
    scripts = {name: script for name, (_, script) in (DROPPED | USED).items()}
    found = {}
    for name, lines in records_of(tmp_path_factory.mktemp("passes"), "pytorch", BEGIN, scripts).items():
        steps = [line for line in lines if line["kind"] == "step"]
        assert {line["samples"] for line in steps} == {192 // len(steps)}
        found[name] = {(line["micro_steps"], line.get("dropped", 0)) for line in steps}
    return found


@pytest.mark.parametrize("name", DROPPED)
def test_a_pass_whose_gradients_are_dropped_is_no_micro_step(passes, name):
    assert passes[name] == {(1, DROPPED[name][0])}


@pytest.mark.parametrize("name", USED)
def test_a_pass_whose_gradients_an_update_uses_is_a_micro_step(passes, name):
    assert passes[name] == {(USED[name][0], 0)}


@pytest.mark.parametrize(
    "cut",
    [
        "torch._foreach_mul_([each.grad for each in net.parameters()], 0.5)",
        "torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)",
        "torch.nn.utils.clip_grad_value_(net.parameters(), 0.001)",
    ],
)
def test_a_batch_whose_gradients_are_cleared_as_too_large_is_no_micro_step(tmp_path, cut):
    script = f"""
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    cross_entropy(net(x), y).backward()
    if i % 3 == 1:
        optimizer.zero_grad()
        continue
    {cut}
    optimizer.step()
"""
    lines = records_of(tmp_path, "pytorch", BEGIN, {"left out": script})["left out"]
    steps = [line for line in lines if line["kind"] == "step"]
    assert [line["micro_steps"] for line in steps] == [1] * 8
    assert [line.get("dropped", 0) for line in steps] == [0, 1] * 4
    assert [line["samples"] for line in steps] == [16] * 8
