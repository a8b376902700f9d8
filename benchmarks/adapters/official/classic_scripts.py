"""Official scripts of MXNet and Chainer, and Caffe's own program.

CNTK's examples write their models into the script and read them from files of MNIST or CIFAR-10 that a script of its
own downloads, so that none of them trains a model of the adapter; ChainerMN's example of MNIST trains by Adam, which
no adapter has.
"""

import json
from pathlib import Path

from official.script import OfficialScript, ScriptRun
from race import Cost, cost_of_workers

_HERE = Path(__file__).parent


def _mxnet_imagenet(run: ScriptRun) -> list[list[str]]:
    data = ["--benchmark", 1, "--image-shape", "1,28,28", "--num-classes", 10]
    data += ["--num-examples", run.batch * (run.warmup + run.steps), "--batch-size", run.batch, "--num-epochs", 1]
    own = ["--network", "lenet5", "--lr", 0.01, "--mom", 0.9, "--wd", 0, "--kv-store", "local", "--disp-batches", 10000]
    return [run.command(*data, *own)]


def _chainer_cifar(run: ScriptRun) -> list[list[str]]:
    own = ["--device", -1, "--batchsize", run.batch, "--learnrate", 0.05, "--epoch", 1]
    return [run.command(*own)]


def _caffe_train(run: ScriptRun) -> list[list[str]]:
    numbers = map(str, (run.batch, run.steps, run.warmup))
    return [[str(run.python), str(_HERE / "caffe_program.py"), str(run.script), run.workload, *numbers]]


def _printed_cost(_: ScriptRun, output: str) -> Cost:
    return cost_of_workers([json.loads(line) for line in output.splitlines() if line.startswith("{")])


CLASSIC_SCRIPTS = {
    "mxnet-imagenet": OfficialScript(
        framework="mxnet",
        url="https://github.com/apache/mxnet/blob/v1.9.1/example/image-classification/train_imagenet.py",
        commands=_mxnet_imagenet,
        workloads=("lenet5",),
        strategies={1: "single"},
        modules="mxnet_modules",
        differences=(
            "Its folder must hold the example's folder common and not its symbols, of which LeNet-5 is not one.",
            "Every step computes the accuracy in numpy, for which the host waits.",
        ),
    ),
    "chainer-cifar": OfficialScript(
        framework="chainer",
        url="https://github.com/chainer/chainer/blob/v7.8.1/examples/cifar/train_cifar.py",
        commands=_chainer_cifar,
        workloads=("resnet50@32",),
        strategies={1: "single"},
        modules="chainer_modules",
        optimizer={"learning_rate": 0.05, "weight_decay": 5e-4},
        environment={"RACE_STOP": "1"},
        differences=(
            "The model is the plain loop's ResNet-50 under the name of the example's.",
            "An iterator of Chainer makes each batch of single images, and every step computes the accuracy.",
            "Chainer checks the types of all functions, which is its default.",
        ),
    ),
    "caffe-train": OfficialScript(
        framework="caffe",
        url="https://github.com/BVLC/caffe/blob/master/tools/caffe.cpp",
        commands=_caffe_train,
        workloads=("lenet5", "resnet50@64"),
        strategies={1: "single"},
        cost=_printed_cost,
        differences=(
            "It is the program caffe of the adapter's environment (debian/usr/bin/caffe), which Debian built.",
            "A layer HDF5Data copies each batch from memory; the adapter's MemoryData does not.",
        ),
    ),
}
