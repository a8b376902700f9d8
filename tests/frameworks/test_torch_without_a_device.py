"""The CUDA paths of torch where no device is: what its functions take, and a whole step on tensors without values."""

import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from launching import check_job, interpreter_for
from test_without_a_device import in_framework

from steptime.catalog.accelerators import Accelerator, Accelerators
from steptime.catalog.manifest import load_manifests
from steptime.runner.preparation import ready_interpreter

sys.path.append(str(Path(__file__).parents[2] / "benchmarks/gpu"))
from torch_signatures import TABLE, called
from wheel_architectures import pinned

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: dict[str, list[Any]] = {
    "torch.amp.GradScaler.__init__": ["self", "cuda"],
    "torch.amp.GradScaler.scale": ["self", "a loss"],
    "torch.amp.GradScaler.step": ["self", "an optimizer"],
    "torch.amp.GradScaler.update": ["self"],
    "torch.cuda.Event.__new__": ["self", "enable_timing"],
    "torch.cuda.Event.elapsed_time": ["self", "end"],
    "torch.cuda.Event.record": ["self"],
    "torch.cuda.Stream.__new__": ["self", "cuda:0"],
    "torch.cuda.Stream.wait_stream": ["self", "a stream"],
    "torch.cuda.current_stream": ["cuda:0"],
    "torch.cuda.device_count": [],
    "torch.cuda.get_device_name": ["cuda:0"],
    "torch.cuda.get_rng_state": ["cuda:0"],
    "torch.cuda.is_available": [],
    "torch.cuda.is_current_stream_capturing": [],
    "torch.cuda.is_initialized": [],
    "torch.cuda.max_memory_allocated": ["cuda:0"],
    "torch.cuda.nccl.version": [],
    "torch.cuda.set_device": ["cuda:0"],
    "torch.cuda.set_rng_state": ["a state", "cuda:0"],
    "torch.cuda.stream": ["a stream"],
    "torch.cuda.synchronize": ["cuda:0"],
}
"""What the CUDA paths of torch call, and with what."""
GROUP = {"init_method": "", "rank": 0, "world_size": 1, "device_id": 0}
"""The keywords of the process group over NCCL, beside the name of the back end."""
WHEELS: dict[str, dict[str, Any]] = json.loads(TABLE.read_text())


def parameters(version: str, name: str) -> inspect.Signature:
    taken = WHEELS[version]["functions"][name]
    function: Callable[..., None] = eval(f"lambda {taken}: None")  # noqa: S307 - of a file beside the tests
    return inspect.signature(function)


@pytest.mark.parametrize("version", WHEELS)
def test_the_wheels_whose_functions_were_read_are_those_that_are_locked(version: str) -> None:
    manifest = load_manifests()["pytorch"]
    locks = [(manifest.folder / build.requirements).with_suffix(".lock") for build in manifest.cuda]
    locked = {found: digests for lock in locks for name, found, digests, _ in pinned(lock) if name == "torch"}
    assert set(WHEELS) == set(locked)
    assert WHEELS[version]["sha256"] in locked[version]


def test_every_function_that_is_called_is_one_of_these() -> None:
    classes = {name.rpartition(".")[0] for name in CALLS}
    assert called() - set(CALLS) - classes == {"torch.distributed.init_process_group"}


@pytest.mark.parametrize("version", WHEELS)
def test_torch_takes_what_its_paths_of_cuda_call_it_with(version: str) -> None:
    for name, arguments in CALLS.items():
        parameters(version, name).bind(*arguments)
    parameters(version, "torch.distributed.init_process_group").bind("nccl", **GROUP)


SEARCHES = """
    import torch
    from steptime.libraries.torch import devices
    torch.cuda.device_count, torch.cuda.set_device = (lambda: 1), (lambda _: None)
    devices.set_threads = lambda _: None
    context = types.SimpleNamespace(local_rank=0)
    found = []
    for job in jobs:
        devices.open_device(job, context)
        found.append(torch.backends.cudnn.benchmark)
    print(json.dumps(found))
"""


@pytest.mark.framework("pytorch")
def test_cudnn_searches_the_quickest_kernels_where_the_job_wants_it() -> None:
    jobs = [{"device": "cuda", "precision": "fp32", **more} for more in ({"searches": True}, {"searches": False}, {})]
    assert in_framework(interpreter_for("pytorch"), SEARCHES, jobs=jobs) == [True, False, False]


STEP = """
    import contextlib, ctypes, os
    build = os.path.join(torch_folder, "lib", "libtorch_cuda.so")
    if os.path.exists(build):
        ctypes.CDLL(build)  # before the stand-in, which is to replace what it registers
    device = ctypes.CDLL(stand_in)
    import torch
    from torch._subclasses import fake_tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from steptime.libraries.torch.network import TorchWorkload
    from steptime.libraries.torch.session import TorchForward
    from steptime.libraries.torch.strategy import TorchStrategy
    torch.cuda.is_available = torch.cuda.is_bf16_supported = lambda: True
    fake_tensor.init_gpu_context = lambda _: None  # allocates, where a device is available
    library = torch.library.Library("aten", "IMPL")
    library.impl("_fused_sgd_", lambda *_, **__: None, "Meta")  # torch has none for tensors without values
    seen, asked = {}, []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = str(function).split(".")[1]
            if name in ("convolution", "convolution_backward", "addmm", "mm"):
                kinds = seen.setdefault(name, set())
                kinds.update("%s on %s" % (each.dtype, each.device) for each in args if torch.is_tensor(each))
            if name == "_local_scalar_dense":
                asked.append(name)
            return function(*args, **(kwargs or {}))

    def steps(job):
        seen.clear(), asked.clear()
        before, shape = device.device_waits(), None
        strategy = TorchStrategy(job, None, types.SimpleNamespace(torch_device=torch.device("cuda", 0)))
        with contextlib.suppress(fake_tensor.DataDependentOutputException), fake_tensor.FakeTensorMode(), Seen():
            with torch.device("cuda:0"):
                built = TorchWorkload(job["workload"])
                batch = torch.empty((2, 1, 28, 28)), torch.zeros(2, dtype=torch.int64)
            forward = TorchForward(strategy.prepare(built), job, None, strategy)
            for _ in range(2):
                strategy.update(forward.loss(*batch))
            shape = list(forward.output_shape)
        held = {str(each.device) for state in strategy.optimizer.state.values() for each in state.values()}
        return dict(version=torch.__version__.split("+")[0], shape=shape, asked=len(asked), held=sorted(held),
            waits=device.device_waits() - before, types={name: sorted(each) for name, each in seen.items()})

    print(json.dumps([steps(job) for job in jobs]))
"""
CASES = [("fp32", "default"), ("tf32", "default"), ("bf16", "default"), ("fp16", "default"), ("fp16", "foreach")]
"""Precision, and the option `update`."""


def python_of(build: str) -> Path:
    """Return the interpreter of a build of torch, or skip the test where it is not there."""
    if not build:
        return interpreter_for("pytorch")
    found = Accelerators((Accelerator("a GPU", capability=(8, 0)),), "535.104.05")
    ready = ready_interpreter("pytorch", device="cuda", accelerators=found)
    if ready is None:
        pytest.skip(f"no environment pytorch{build}, which takes 7 GB; its functions are read off the locked wheel")
    return ready


Steps = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module", params=["", "-cuda12"], ids=["processors", "cuda12"])
def steps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Steps:
    """Two steps of each case on a device that is none, by the build for processors and by the older one for CUDA."""
    compiler = shutil.which("g++")
    assert compiler is not None
    python = python_of(request.param)
    said = subprocess.run(
        [python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"],
        check=True,
        capture_output=True,
        text=True,
    )
    folder, stand_in = Path(said.stdout.strip()), tmp_path_factory.mktemp("device") / "device.so"
    source = Path(__file__).parents[1] / "fake_driver/torch_device.cpp"
    how = ["-std=c++20", "-w", "-shared", "-fPIC", f"-I{folder}/include", str(source), "-o", str(stand_in)]
    linked = [f"-L{folder}/lib", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{folder}/lib"]
    subprocess.run([compiler, *how, *linked], check=True)
    jobs = [
        check_job(
            "pytorch", "single", "lenet5", steps=1, device="cuda", precision=precision, options={"update": update}
        )
        for precision, update in CASES
    ]
    found = in_framework(python, STEP, jobs=jobs, torch_folder=str(folder), stand_in=str(stand_in))
    return dict(zip(CASES, found, strict=True))


@pytest.mark.costly
@pytest.mark.needs("compiler")
@pytest.mark.framework("pytorch")
@pytest.mark.parametrize(
    ("precision", "kind"), [("fp32", "float32"), ("tf32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")]
)
def test_a_step_of_torch_multiplies_on_the_device_in_the_types_of_its_precision_and_waits_for_nothing(
    steps: Steps, precision: str, kind: str
) -> None:
    """Forward pass, backward pass and update, whose tensors have shapes, types and a device, and no values."""
    found = steps[precision, "default"]
    assert found["version"] in WHEELS
    assert (found["shape"], found["held"]) == ([2, 10], ["cuda:0"])
    assert (found["asked"], found["waits"]) == (0, 0)
    kinds = {key: [f"torch.{kind} on cuda:0"] for key in ("convolution", "convolution_backward", "addmm", "mm")}
    assert found["types"] == kinds


@pytest.mark.costly
@pytest.mark.needs("compiler")
@pytest.mark.framework("pytorch")
def test_loss_scaling_of_torch_asks_the_device_for_a_number_where_a_study_wants_its_other_update(steps: Steps) -> None:
    """A number that Python asks for makes a host wait for its device; tensors without values cannot answer."""
    found = steps["fp16", "foreach"]
    assert (found["asked"], found["shape"]) == (1, None)
