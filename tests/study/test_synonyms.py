"""Words of the field that a study does not use lead to those that it uses, before spelling is asked."""

import pytest

from steptime import synonyms
from steptime.catalog.choices import LAUNCHERS, LOADERS, STRATEGIES
from steptime.datasets.builtins import BUILTINS
from steptime.errors import choices_message
from steptime.predict.query import KEYS
from steptime.study.mistakes import KnownNames, allowed_keys
from steptime.study.study import ENVIRONMENT_KINDS

KNOWN = KnownNames.installed()
DEVICES = ["auto", "cpu", "cuda"]
PRECISIONS = ["bf16", "fp16", "fp32", "tf32"]
PLACES = {
    "framework": list(KNOWN.frameworks),
    "strategy": list(STRATEGIES),
    "workload": list(KNOWN.workloads),
    "dataset": list(BUILTINS),
    "loader": list(LOADERS),
    "launcher": list(LAUNCHERS),
    "device": DEVICES,
    "precision": PRECISIONS,
    "kind": list(ENVIRONMENT_KINDS),
    "study": allowed_keys(()),
    "workloads": allowed_keys(("workloads",)),
    "loaders": allowed_keys(("loaders",)),
    "hosts": allowed_keys(("hosts",)),
    "slurm": allowed_keys(("slurm",)),
    "cluster": allowed_keys(("cluster",)),
    "optimizer": allowed_keys(("optimizer",)),
    "train": allowed_keys(("train",)),
    "environment": allowed_keys(("environments", "pytorch")),
    "query": list(KEYS),
    "query_device": ["a100-40gb", "a100-80gb", "cpu", "cuda"],
}


def test_every_choice_of_the_table_can_be_chosen_somewhere():
    choices = {choice for choices in PLACES.values() for choice in choices}

    meant = {choice for names in synonyms._CHOICES for choice in names.split()}
    assert meant - choices == set()
    assert {among for _, among, _ in synonyms._INSTEAD} - choices == set()


@pytest.mark.parametrize(
    ("place", "word", "meant"),
    [
        ("device", "gpu", ["cuda"]),
        ("device", "cuda:0", ["cuda"]),
        ("device", "CUDA", ["cuda"]),
        ("strategy", "ring", ["allreduce"]),
        ("strategy", "ddp", ["allreduce"]),
        ("strategy", "DistributedDataParallel", ["allreduce"]),
        ("strategy", "MirroredStrategy", ["allreduce"]),
        ("strategy", "horovod", ["allreduce"]),
        ("strategy", "zero", ["zero1", "zero2", "zero3"]),
        ("strategy", "zero-3", ["zero3"]),
        ("strategy", "FullyShardedDataParallel", ["fsdp"]),
        ("strategy", "parameter_server", ["ps_sync", "ps_async"]),
        ("framework", "torch", ["pytorch"]),
        ("framework", "keras", ["tensorflow"]),
        ("framework", "tf", ["tensorflow"]),
        ("framework", "hvd", ["horovod_pytorch", "horovod_tensorflow", "horovod_mxnet"]),
        ("framework", "Hovorod", ["horovod_pytorch", "horovod_tensorflow", "horovod_mxnet"]),
        ("framework", "flax", ["jax"]),
        ("workload", "ResNet-50", ["resnet50"]),
        ("workload", "bert-base", ["bert_base"]),
        ("precision", "half", ["fp16"]),
        ("precision", "bfloat16", ["bf16"]),
        ("precision", "float32", ["fp32"]),
        ("loader", "dataloader", ["native"]),
        ("loader", "fake", ["synthetic"]),
        ("launcher", "torchrun", ["local"]),
        ("launcher", "mpirun", ["mpi"]),
        ("study", "num_gpus", ["workers"]),
        ("study", "world_size", ["workers"]),
        ("study", "per_device_train_batch_size", ["batch_per_worker"]),
        ("study", "bs", ["batch_per_worker"]),
        ("study", "train_batch_size", ["global_batch"]),
        ("study", "gradient_accumulation_steps", ["accumulation"]),
        ("study", "model", ["workloads"]),
        ("study", "backend", ["frameworks"]),
        ("study", "dtype", ["precision"]),
        ("study", "use_gpu", ["device"]),
        ("study", "timeout", ["budget", "time_limit"]),
        ("study", "repeats", ["launches"]),
        ("study", "OMP_NUM_THREADS", ["threads_per_worker"]),
        ("workloads", "img_size", ["image"]),
        ("workloads", "max_length", ["sequence"]),
        ("workloads", "vocab_size", ["vocabulary"]),
        ("loaders", "num_workers", ["processes"]),
        ("hosts", "slots", ["workers_per_host"]),
        ("optimizer", "lr", ["learning_rate"]),
        ("optimizer", "wd", ["weight_decay"]),
        ("train", "num_train_epochs", ["epochs"]),
        ("cluster", "latency", ["delay"]),
        ("query", "bandwidth", ["interconnect.bandwidth"]),
    ],
)
def test_a_word_of_the_field_leads_to_the_choices_that_it_means(place, word, meant):
    text = choices_message("word", word, PLACES[place])

    assert f"unknown word {word!r}; did you mean {' or '.join(map(repr, meant))}? (choices: " in text


@pytest.mark.parametrize(
    ("place", "word", "said"),
    [
        ("workload", "resnet18", "of this family there are resnet101, resnet152, resnet50 "),
        ("workload", "vgg19", "of this family there is vgg16 "),
        ("workload", "gpt2-xl", "of this family there are gpt2, gpt2_tiny "),
        ("workload", "bert-large-uncased", "of this family there are bert_base, bert_tiny "),
        ("query_device", "A100", "of this family there are a100-40gb, a100-80gb "),
        ("study", "nproc_per_node", "workers_per_host: 4}"),
        ("study", "nodes", "hosts: [n1, n2]"),
        ("study", "epochs", "write train: {epochs: 3}"),
        ("study", "fp16", "write precision: fp16"),
        ("study", "amp", "precision: bf16"),
        ("study", "lr", "write optimizer: {learning_rate: 0.1}"),
        ("study", "gradient_clipping", "write optimizer: {clip_norm: 1.0}"),
        ("study", "num_workers", "helper processes of a loader are loaders:"),
        ("study", "img_size", "image: 64}"),
        ("study", "MASTER_ADDR", "leave it out, steptime chooses it"),
        ("strategy", "tensor_parallel", "all strategies are data-parallel"),
        ("device", "mps", "processors and NVIDIA GPUs"),
        ("dataset", "cifar10", "photos is built in and made, not downloaded"),
        ("kind", "conda", "write kind: existing"),
    ],
)
def test_a_word_without_one_choice_gets_a_sentence(place, word, said):
    assert said in choices_message("word", word, PLACES[place])


@pytest.mark.parametrize(
    ("place", "word", "near"),
    [("framework", "pytroch", "pytorch"), ("workload", "resnet5", "resnet50"), ("workload", "lenet6", "lenet5"),
     ("strategy", "alreduce", "allreduce"), ("study", "workres", "workers"), ("dataset", "digit", "digits")],
)  # fmt: skip
def test_a_misspelled_choice_is_still_found(place, word, near):
    assert f"did you mean {near!r}?" in choices_message("word", word, PLACES[place])


def test_no_choice_is_a_word_for_another_one_of_its_place():
    wrong = [
        (place, choice, meant)
        for place, choices in PLACES.items()
        for choice in choices
        if (meant := synonyms.hint(choice, choices)) != f"did you mean {choice!r}?"
    ]

    assert wrong == []


def test_a_word_that_means_nothing_here_is_not_spelled_into_something_else():
    assert "did you mean" not in choices_message("framework", "gpu", ["cpu", "cntk"])
