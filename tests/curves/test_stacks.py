"""Declared facts of stacks: recognised whatever the spelling, and the same as the step graph's where there is one."""

import pytest

from steptime.curves.curve import EvidenceError
from steptime.curves.facts import UNKNOWN, declared_stacks, stack_names, stack_of
from steptime.curves.table import read_own_curves
from steptime.model.policies import step_graph
from steptime.worker.communication import Gradient, LayerWork, PolicyContext, Work

SPELLINGS = {
    "tensorflow_mirrored": (
        "TensorFlow 2.3 (MirroredStrategy)",
        "tf2.3, Mirrored Strategy",
        "tensorflow-2.21 multi-worker-mirrored-strategy",
        "TF MWMS",
        "tf.distribute.MirroredStrategy",
    ),
    "pytorch_ddp": ("PyTorch DDP", "torch ddp", "pytorch 2.1 Distributed-Data-Parallel", "DistributedDataParallel"),
    "tensorflow_horovod": ("TensorFlow 1.15 + Horovod", "tf/hvd", "HOROVOD on TENSORFLOW"),
    "paddlepaddle": ("PaddlePaddle 1.8", "Paddle-Paddle", "paddle 2.0"),
    "pytorch_apex": ("NGC PyTorch 1.5 APEX DDP", "torch apex"),
    "mxnet_gluon_nlp": ("MXNet 1.6 gluon-nlp + Horovod", "mxnet GluonNLP hvd"),
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in SPELLINGS.items() for text in texts])
def test_spelling_does_not_matter(name, text):
    found = stack_of(text)
    assert found == stack_of(SPELLINGS[name][0])
    assert found.name == name


def test_an_unknown_text_declares_nothing():
    found = stack_of("my own trainer")
    assert found.name == UNKNOWN
    assert found.exchange is found.value_bytes is None


def test_a_stack_can_be_named_without_a_text():
    assert stack_of("", declared="tensorflow_mirrored") == stack_of("TensorFlow 2.3 (MirroredStrategy)")


@pytest.mark.parametrize(
    ("text", "exchange", "messages"),
    [
        ("PyTorch 1.4 + Horovod (single bucket; no overlap)", "after_backward", "one"),
        ("PyTorch 1.4 + BytePS (No-Overlap)", "after_backward", "one"),
        ("PyTorch 1.4 + Horovod (one all-reduce per tensor)", "during_backward", "tensors"),
        ("B-Caffe (WFBP)", "during_backward", "tensors"),
        ("B-Caffe (MG-WFBP)", "during_backward", "buckets"),
    ],
)
def test_an_option_changes_what_it_names(text, exchange, messages):
    found = stack_of(text)
    assert (found.exchange, found.messages) == (exchange, messages)


def test_a_wrong_name_is_told_with_the_choices(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("workers,step_time_s,stack\n1,0.2,pytorch_dpd\n")
    with pytest.raises(EvidenceError, match=r"unknown stack 'pytorch_dpd'.*pytorch_ddp"):
        read_own_curves(path)


def test_names_are_unique():
    assert len(set(stack_names())) == len(stack_names())


def _work():
    layers = [
        LayerWork(f"layer{number}", "dense", 1e9, 2e9, 1e6, (Gradient(f"w{number}", number, 32 * 2**20),))
        for number in range(4)
    ]
    return Work("four_layers", tuple(layers))


@pytest.mark.parametrize("stack", [each for each in declared_stacks() if each.step_graph], ids=lambda each: each.name)
def test_the_step_graph_says_the_same(stack):
    """What is exchanged during the backward pass starts before its last layer is through."""
    framework, _, strategy = stack.step_graph.partition("/")
    context = PolicyContext(workers=2, servers=0, options={})
    plan = step_graph(_work(), framework, strategy, context).plan
    early = plan.fusion is not None or any(message.after > 0 for message in plan.messages)
    assert early == (stack.exchange == "during_backward")
