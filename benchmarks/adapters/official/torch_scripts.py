"""Official scripts of PyTorch, of Horovod for PyTorch and of DeepSpeed."""

from official.script import OfficialScript, ScriptRun

_MODULES = "torch_modules"


def _horovod_synthetic(run: ScriptRun) -> list[list[str]]:
    here = ["-H", f"localhost:{run.workers}", "--gloo", "--network-interface", "lo"]
    launcher = [str(run.python), run.program("horovodrun"), "-np", str(run.workers), *here]
    # Its warm-up and its only iteration are as long as the race's, so that no line is printed in between.
    numbers = ["--num-warmup-batches", run.warmup, "--num-batches-per-iter", run.steps, "--num-iters", 1]
    model, _, _ = run.workload.partition("@")
    own = ["--no-cuda", "--model", model, "--batch-size", run.batch, *numbers]
    return [[*launcher, *run.command(*own)]]


def _imagenet(run: ScriptRun) -> list[list[str]]:
    model, _, _ = run.workload.partition("@")
    own = ["--dummy", "--no-accel", "-a", model, "-b", run.batch, "-j", 0, "--lr", 0.01, "--wd", 0.0, "--epochs", 1]
    return [run.command(*own)]


def _cifar(run: ScriptRun) -> list[list[str]]:
    launcher = [str(run.python), run.program("deepspeed"), "--num_gpus", str(run.workers), "--master_port"]
    own = ["--deepspeed", "--dtype", "fp32", "--epochs", "1"]
    return [[*launcher, str(run.port), str(run.script), *own]]


TORCH_SCRIPTS = {
    "deepspeed-cifar": OfficialScript(
        framework="deepspeed",
        url="https://github.com/deepspeedai/DeepSpeedExamples/blob/master/training/cifar/cifar10_deepspeed.py",
        commands=_cifar,
        workloads=("cifar-net",),
        strategies={1: "single", 2: "allreduce"},
        modules=_MODULES,
        environment={"DS_ACCELERATOR": "cpu", "RACE_STOP": "1"},
        differences=(
            "deepspeed.initialize gets SGD with momentum, the race's batch and no clipping in place of Adam, 16 and 1.",
            "A loader of DeepSpeed makes each batch, and every step reads the loss and asks the schedule for its rate.",
        ),
    ),
    "horovod-pytorch-synthetic": OfficialScript(
        framework="horovod_pytorch",
        url="https://github.com/horovod/horovod/blob/master/examples/pytorch/pytorch_synthetic_benchmark.py",
        commands=_horovod_synthetic,
        workloads=("resnet50@224",),
        optimizer={"momentum": 0.0},
        modules=_MODULES,
        differences=(
            "The model's class is that of the plain loop, since torchvision is not installed.",
            "Images have their channels outermost; the adapter has them innermost for ResNet-50.",
        ),
    ),
    "pytorch-imagenet": OfficialScript(
        framework="pytorch",
        url="https://github.com/pytorch/examples/blob/main/imagenet/main.py",
        commands=_imagenet,
        workloads=("resnet50@224",),
        strategies={1: "single"},
        modules=_MODULES,
        environment={"RACE_STOP": "1"},
        differences=(
            "On processors it trains one worker only: it wraps its model in DistributedDataParallel on GPUs alone.",
            "The model's class is that of the plain loop, since torchvision is not installed.",
            "A loader of torch makes each batch of one image, and every step computes the accuracy and reads the loss.",
            "Images have their channels outermost; the adapter has them innermost for ResNet-50.",
        ),
    ),
}
