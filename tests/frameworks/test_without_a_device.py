"""Paths of CUDA devices that frameworks can be asked about where no device is."""

import inspect
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from launching import interpreter_for

import steptime
from steptime.catalog.accelerators import Accelerator, Accelerators
from steptime.catalog.workloads.table import build_workload
from steptime.runner.preparation import ready_interpreter

SOURCE = str(Path(steptime.__file__).parents[1])
BEGIN = "import json, sys, types\nsys.path.insert(0, {source!r})\nglobals().update(json.loads({values!r}))\n"


def in_framework(python: Path, code: str, **values: Any) -> Any:
    """Run ``code`` in an environment, with ``values`` as variables; return the JSON that it prints last."""
    begin = BEGIN.format(source=SOURCE, values=json.dumps(values))
    run = subprocess.run([python, "-c", begin + inspect.cleandoc(code)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


STEP_OF_JAX = """
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    from steptime.frameworks.jax.network import JaxNetwork, import_jax
    jax = import_jax(1, "cuda", 0, precision)
    jax.config.update("jax_platforms", "cpu")
    import numpy, re
    from jax.sharding import Mesh, PartitionSpec
    from steptime.frameworks.jax.mesh import AXIS
    from steptime.frameworks.jax.optimizers import slots_of
    from steptime.frameworks.jax.training_step import JaxStep
    settings = dict(name="sgd", momentum=0.9, learning_rate=0.1, weight_decay=0.0)
    job = dict(optimizer=settings, strategy=strategy, options=dict(windows="lax", donate=True, pack_kb=0))
    network = JaxNetwork(workload, precision)
    variables = network.variables({name: numpy.zeros(shape, numpy.float32) for name, shape in shapes.items()})
    workers = 2 if strategy == "allreduce" else 1
    keys = numpy.stack([numpy.asarray(jax.random.key_data(jax.random.key(0)))] * workers)
    state = (variables, {slot: variables for slot in slots_of(settings)}, {}, 0, keys)
    placement = types.SimpleNamespace(alike=PartitionSpec(), split=PartitionSpec(AXIS))
    step = JaxStep(network, job, Mesh(numpy.array(jax.devices()[:workers]), (AXIS,)), placement)
    batch = numpy.zeros((2 * workers, 28, 28, 1), numpy.float32), numpy.zeros(2 * workers, numpy.int32)
    text = step.compiled(step.train).trace(state, *batch).lower(lowering_platforms=("cuda",)).as_text()
    products = [line for line in text.splitlines() if re.search(r"stablehlo\\.(dot_general|convolution)", line)]
    asked = [set(re.findall(r"precision [A-Z]+|precision = \\[[A-Z, ]+\\]", line)) for line in products]
    print(json.dumps(dict(products=len(products), asked=sorted({each for one in asked for each in one} or []),
        silent=sum(not each for each in asked), sums=text.count("stablehlo.all_reduce"),
        donated=text.count("tf.aliasing_output") + text.count("jax.buffer_donor"), parameters=len(shapes))))
"""


@cache
def lowered(precision: str, strategy: str) -> dict[str, Any]:
    """What JAX asks of XLA on CUDA devices in a step of LeNet-5."""
    workload = build_workload("lenet5").to_json()
    shapes = {each["name"]: each["shape"] for layer in workload["layers"] for each in layer["parameters"]}
    python = interpreter_for("jax")
    found: dict[str, Any] = in_framework(
        python, STEP_OF_JAX, precision=precision, strategy=strategy, workload=workload, shapes=shapes
    )
    return found


@pytest.mark.framework("jax")
@pytest.mark.parametrize(("precision", "asked"), [("fp32", "HIGHEST"), ("tf32", "HIGH")])
def test_every_product_of_a_jax_step_for_a_gpu_asks_for_its_precision(precision: str, asked: str) -> None:
    """Five layers: the forward pass, and the gradients of weights and of all inputs but the first."""
    found = lowered(precision, "single")
    assert (found["products"], found["silent"]) == (14, 0)
    assert found["asked"] == [f"precision = [{asked}, {asked}]", f"precision {asked}"]


@pytest.mark.framework("jax")
@pytest.mark.parametrize(("strategy", "sums"), [("single", 0), ("allreduce", 10)])
def test_a_jax_step_for_gpus_sums_each_gradient_once_and_donates_its_state(strategy: str, sums: int) -> None:
    found = lowered("fp32", strategy)
    assert (found["sums"], found["parameters"]) == (sums, 10)
    assert found["donated"] == 10 + 10 + 2  # weights, momentum, number of the step, random key


PROBED = """
    import mxnet
    from mxnet.contrib import amp
    from steptime.libraries.mxnet.startup import use_precision
    use_precision({"precision": "fp16", "device": "cuda"})
    rows, one = (mxnet.sym.Variable(name, dtype="float32") for name in ("rows", "one"))
    products = [mxnet.sym.FullyConnected(rows, one, num_hidden=4, no_bias=True), mxnet.sym.dot(rows, one)]
    kinds = []
    for product in products:
        nodes = json.loads(product.tojson(remove_amp_cast=False))["nodes"]
        kinds.append([node["attrs"]["dtype"] for node in nodes if node["op"] == "amp_cast"])
    print(json.dumps(kinds))
"""


@pytest.mark.framework("mxnet")
def test_what_mxnets_probe_multiplies_is_cast_under_mixed_precision_and_its_dot_is_not() -> None:
    assert in_framework(interpreter_for("mxnet"), PROBED) == [["float16", "float16"], []]


STUB = """
    import ctypes, glob, os, re, subprocess, sysconfig, tempfile
    packages = sysconfig.get_paths()["purelib"]
    libraries = [path for pattern in patterns for path in glob.glob(os.path.join(packages, pattern), recursive=True)]
    names, version = set(), "cuDriverGetVersion"
    for path in libraries:
        said = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True).stdout
        names.update(re.findall(r"\\bU (cu[A-Z]\\w*)", said))
    if not libraries:
        raise RuntimeError("no libraries %s" % patterns)
    folder = tempfile.mkdtemp()
    source, stub = os.path.join(folder, "stub.c"), os.path.join(folder, "libcuda.so.1")
    with open(source, "w") as file:
        file.writelines("int %s(void) { return 100; }\\n" % name for name in sorted(names | {"cuInit"} - {version}))
        file.write("int %s(int *found) { *found = 12090; return 0; }\\n" % version)
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o", stub], check=True)
    ctypes.CDLL(stub, mode=ctypes.RTLD_GLOBAL)
    from steptime.libraries.nvidia.wheels import load_libraries
    missing = load_libraries()
    module = __import__(name)
    try:
        devices = eval(count, {name: module})
    except module.cuda.runtime.CUDARuntimeError as error:
        devices = str(error)
    print(json.dumps([missing, module.__version__, devices]))
"""


@pytest.mark.needs("compiler")
@pytest.mark.parametrize(
    ("framework", "capability", "name", "patterns", "version", "count", "devices"),
    [
        pytest.param(
            "mxnet",
            (8, 0),
            "mxnet",
            ["mxnet/libmxnet.so"],
            "1.9.1",
            "mxnet.context.num_gpus()",
            0,
            marks=pytest.mark.framework("mxnet"),
        ),
        pytest.param(
            "chainer",
            (8, 0),
            "cupy",
            ["cupy/**/*.so", "cupy_backends/**/*.so"],
            "12.3.0",
            "cupy.cuda.runtime.getDeviceCount()",
            "cudaErrorNoDevice: no CUDA-capable device is detected",
            marks=pytest.mark.framework("chainer"),
        ),
    ],
)
def test_a_build_for_cuda_imports_over_a_driver_that_has_no_device(  # noqa: PLR0913, PLR0917 - one row of a table
    framework: str,
    capability: tuple[int, int],
    name: str,
    patterns: list[str],
    version: str,
    count: str,
    devices: object,
) -> None:
    """The driver is a stand-in whose functions all say that there is no device."""
    found = Accelerators((Accelerator("a GPU", capability=capability),), "580.65.06")
    python = ready_interpreter(framework, device="cuda", accelerators=found)
    if python is None:
        pytest.skip(f"no environment {framework}-cuda, which takes 3 GB or more and has the libraries that it imports")
    found = in_framework(python, STUB, name=name, patterns=patterns, count=count)
    assert found == [[], version, devices]
