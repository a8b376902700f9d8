"""The facts that hold for the communication policy of every framework and strategy, and for the plainest ones."""

import subprocess
import sys
from collections import Counter
from itertools import product

import pytest

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.table import build_workload
from steptime.errors import SteptimeError
from steptime.model.compute import work_of
from steptime.model.policies import BROUGHT_BY, has_own_policy, has_policy, policies_in, policies_of, step_graph
from steptime.worker.communication import PLAINEST, CommunicationPlan, Gradient, LayerWork, PolicyContext, Work

PIECES = [*[3_125_000] * 31, 3_125_001]
EVEN = Work(
    "bert",
    tuple(
        LayerWork(f"piece{place}", "unknown", 1.0, 2.0, 1.0, (Gradient(f"piece{place}.weight", place, size),), place)
        for place, size in enumerate(PIECES)
    ),
)
"""Equal layers with equal gradients, of a workload whose number of parameters alone is known."""
WORKS = [*(work_of(build_workload(name)) for name in ("lenet5", "mlp", "resnet50")), EVEN]
UNKNOWN = "unknown"
"""A framework that nobody has installed, which follows what stands for each strategy."""
RULES = [
    *((framework, strategy) for framework in load_manifests() for strategy in policies_of(framework)),
    *((UNKNOWN, strategy) for strategy in STRATEGIES if strategy != "single"),
]
OPTIONS = {
    (framework, strategy): [
        (name, value)
        for name, option in load_manifests()[framework].options_for(strategy).items()
        for value in option.choices or [option.default]
    ]
    for framework, strategy in RULES
    if framework != UNKNOWN
}


def _graph(work, framework, strategy, servers=2, device="cpu", **options):
    context = PolicyContext(workers=4, servers=servers, options=options, device=device, batch=32)
    return step_graph(work, framework, strategy, context)


@pytest.mark.parametrize(("framework", "strategy"), RULES)
class TestEveryPolicy:
    """Of every framework and strategy, for works of several kinds."""

    def test_sends_every_gradient_once(self, framework, strategy, subtests):
        for work in WORKS:
            with subtests.test(work=work.name):
                messages = _graph(work, framework, strategy).messages
                sent = Counter(name for message in messages for name in message.gradient_names)

                assert sent == Counter(gradient.name for gradient in work.forward_gradients())

    def test_sends_as_many_bytes_as_there_are(self, framework, strategy, subtests):
        for work in WORKS:
            with subtests.test(work=work.name):
                bits = 1 if strategy == "onebit" else 32
                sent = sum(message.bytes for message in _graph(work, framework, strategy).messages)

                assert sent == pytest.approx(work.gradient_bytes * bits / 32, abs=1)

    def test_sends_nothing_before_it_is_there(self, framework, strategy, subtests):
        for work in WORKS:
            with subtests.test(work=work.name):
                layer_of = {gradient.name: gradient.layer for gradient in work.forward_gradients()}

                for message in _graph(work, framework, strategy).messages:
                    assert message.after <= min(layer_of[name] for name in message.gradient_names)

    def test_starts_messages_in_the_order_in_which_they_can_go(self, framework, strategy, subtests):
        for work in WORKS:
            with subtests.test(work=work.name):
                moments = [message.after for message in _graph(work, framework, strategy).messages]

                assert moments == sorted(moments, reverse=True)

    def test_names_servers_that_exist(self, framework, strategy, subtests):
        for work in WORKS:
            with subtests.test(work=work.name):
                graph = _graph(work, framework, strategy, servers=3)

                assert all(message.server is None or message.server < graph.servers for message in graph.messages)

    def test_gives_the_same_plan_every_time(self, framework, strategy, subtests):
        for work in WORKS:
            with subtests.test(work=work.name):
                assert _graph(work, framework, strategy).plan == _graph(work, framework, strategy).plan


@pytest.mark.parametrize(("framework", "strategy"), list(OPTIONS))
def test_every_option_that_the_manifest_offers_can_be_planned(framework, strategy, subtests):
    gradients = Counter(gradient.name for gradient in WORKS[0].forward_gradients())
    for device, (option, value) in product(["cpu", "cuda"], OPTIONS[framework, strategy]):
        with subtests.test(device=device, option=option, value=value):
            messages = _graph(WORKS[0], framework, strategy, device=device, **{option: value}).messages
            assert Counter(name for message in messages for name in message.gradient_names) == gradients


@pytest.mark.parametrize(("framework", "strategy"), [rule for rule in RULES if rule[0] != UNKNOWN])
def test_options_that_a_trial_leaves_out_have_the_manifests_defaults(framework, strategy):
    defaults = {name: option.default for name, option in load_manifests()[framework].options_for(strategy).items()}

    assert _graph(WORKS[2], framework, strategy).plan == _graph(WORKS[2], framework, strategy, **defaults).plan


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
@pytest.mark.parametrize(
    ("framework", "strategy"), [("pytorch", "fsdp"), ("deepspeed", "zero3"), (UNKNOWN, "fsdp"), (UNKNOWN, "zero3")]
)
def test_weights_are_gathered_unless_they_are_kept(framework, strategy, work):
    plan = _graph(work, framework, strategy).plan
    kept = sum(message.bytes for message in plan.after_update)

    assert sum(gather.bytes for gather in plan.gathers) + kept == work.gradient_bytes


@pytest.mark.parametrize(("framework", "strategy"), RULES)
def test_steps_wait_for_all_workers_where_the_strategy_is_synchronous(framework, strategy):
    assert _graph(WORKS[0], framework, strategy).plan.synchronous == STRATEGIES[strategy].synchronous


def test_every_strategy_has_a_policy_for_frameworks_without_one_of_their_own():
    assert {*PLAINEST, *BROUGHT_BY} == set(STRATEGIES)


@pytest.mark.parametrize(("strategy", "framework"), BROUGHT_BY.items())
def test_the_framework_that_stands_for_a_strategy_has_it(strategy, framework):
    assert has_own_policy(framework, strategy)
    assert _graph(WORKS[1], UNKNOWN, strategy).plan == _graph(WORKS[1], framework, strategy).plan


@pytest.mark.parametrize("framework", load_manifests())
def test_every_strategy_of_every_framework_can_be_planned(framework):
    assert all(has_policy(strategy) for strategy in load_manifests()[framework].strategies)


@pytest.mark.parametrize("framework", [name for name in load_manifests() if policies_of(name)])
def test_a_framework_with_policies_has_one_for_each_of_its_strategies(framework):
    assert set(policies_of(framework)) == set(load_manifests()[framework].strategies) - {"single"}


def test_an_unknown_strategy_is_an_error():
    with pytest.raises(KeyError):
        _graph(WORKS[0], "pytorch", "hearsay")


def test_an_unknown_framework_follows_the_plainest_policy():
    plan = step_graph(WORKS[0], UNKNOWN, "allreduce", PolicyContext()).plan
    assert plan == PLAINEST["allreduce"](WORKS[0], PolicyContext())
    assert not has_own_policy(UNKNOWN, "allreduce")


def test_policies_are_read_without_adapters_and_frameworks():
    program = (
        "import sys\n"
        "from steptime.catalog.manifest import load_manifests\n"
        "from steptime.model.policies import policies_of\n"
        "assert any([policies_of(framework) for framework in load_manifests()])\n"
        "read = {name for name in sys.modules if name.startswith(('steptime.frameworks.', 'steptime.libraries.'))}\n"
        "print(*sorted({name.rpartition('.')[2] for name in read if name.count('.') == 3}))\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert told.stdout.split() == ["communication"]


class TestFrameworkElsewhere:
    """The ``communication.py`` of a framework whose folder lies outside of this package."""

    def test_is_read_from_its_file(self, tmp_path):
        (tmp_path / "communication.py").write_text(
            "from steptime.worker.communication import layerwise\nPOLICIES = {'allreduce': layerwise}\n"
        )

        plan = policies_in(tmp_path)["allreduce"](WORKS[0], PolicyContext())

        assert len(plan.messages) == 10
        assert isinstance(plan, CommunicationPlan)

    def test_gets_the_defaults_of_its_own_manifest(self, tmp_path, monkeypatch):
        (tmp_path / "communication.py").write_text(
            "from steptime.worker.communication import averaged_in_blocks\n"
            "def rare(work, context):\n"
            "    return averaged_in_blocks(work, context, context.number('pack_kb'))\n"
            "POLICIES = {'allreduce': rare}\n"
        )
        jax = load_manifests()["jax"]
        options = {"pack_kb": jax.options["pack_kb"].model_copy(update={"default": 256})}
        elsewhere = jax.model_copy(update={"name": "mine", "folder": tmp_path, "options": options})
        monkeypatch.setattr("steptime.catalog.manifest.load_manifests", lambda: {"mine": elsewhere})

        context = PolicyContext(workers=4, batch=32)
        assert step_graph(WORKS[0], "mine", "allreduce", context).plan.every == 256 / 128

    def test_may_be_missing(self, tmp_path):
        assert policies_in(tmp_path) == {}

    @pytest.mark.parametrize("text", ["import nothing_like_that\n", "RULES = {}\n", "POLICIES = {\n"])
    def test_is_named_when_it_cannot_be_used(self, text, tmp_path):
        path = tmp_path / "communication.py"
        path.write_text(text)

        with pytest.raises(SteptimeError, match="must define POLICIES") as caught:
            policies_in(tmp_path)

        assert str(path) in str(caught.value)


def test_an_option_that_nobody_declared_is_named():
    with pytest.raises(KeyError, match="'bucket_mb', which is not set"):
        PolicyContext().number("bucket_mb")
