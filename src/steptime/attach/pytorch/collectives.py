"""torch.distributed: the methods of process groups, below all that Python calls, and waits for their work."""

from __future__ import annotations

import gc
import importlib
import json
import weakref
from typing import Any, Callable

from .. import patches, process
from ..library_calls import collective_of
from ..record_file import now

METHODS = (
    "allreduce",
    "allreduce_coalesced",
    "allgather",
    "_allgather_base",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "all_gather_single",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "monitored_barrier",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
)
BUFFERS = "_broadcast_coalesced"
# DDP has rebuilt its buckets by then.
BUCKETS_AT_STEP = 8

# Hooks of DDP that send each element in two bytes, by Python and by C++.
HALVES = ("fp16_compress_hook", "bf16_compress_hook", "BuiltinCommHookType.FP16_COMPRESS")

_data_parallel: list[weakref.ref[Any]] = []  # quicker to go through than a set of them
_unnamed: list[Callable[[str], None]] = []  # who notes the back end at the first collective with tensors


class DataParallelPasses:
    """Whether forward passes go through DDP, or around it: by what it wraps (``model.module``)."""

    def __init__(self) -> None:
        self.wrapped: weakref.WeakSet[Any] = weakref.WeakSet()
        self.wraps = False  # whether there is one, which is quicker to ask
        self.around = False
        self.ended = True
        self.bypassed = 0

    def forward(self, module: Any, *, through: bool) -> None:
        """Note a forward with gradient of an outermost ``module``; one ``through`` DDP counts more than one around."""
        if through:
            self.around, self.ended = False, False
        elif self.ended and self.wraps and module in self.wrapped:
            self.around, self.ended = True, False

    def backward(self) -> bool:
        """Note the end of a backward pass; return whether its forward went around DDP."""
        self.ended = True
        self.bypassed += self.around
        return self.around


_passes = DataParallelPasses()


def synchronised() -> bool | None:
    """Return whether the backward pass that has just ended averaged gradients, None without DDP or around it."""
    known = averages = False
    for reference in _data_parallel:  # a loop, since lists of them take longer than the rest
        module = reference()
        if module is not None:
            known, averages = True, averages or bool(module.require_backward_grad_sync)
    return averages if known and not _passes.backward() else None


def data_parallel_passes() -> DataParallelPasses:
    """Return what is known of passes through and around DDP."""
    return _passes


def bytes_of(value: Any) -> int:
    """Return the bytes of a tensor, or of all tensors of a list."""
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value))
    return int(value.numel() * value.element_size()) if hasattr(value, "element_size") else 0


def collective(owner: Any, name: str, kind: str, compiling: Callable[[], bool] = patches.never) -> None:
    """Make ``owner.name`` a collective of ``kind`` on the tensors of its first argument; a `wait` has none."""

    def amount(args: Any) -> int:
        if len(args) < 2 or kind == "wait":  # noqa: PLR2004 - the group and its tensors
            return 0
        if _unnamed:
            _name_back_end(args[1])
        return bytes_of(args[1])

    collective_of(owner, name, kind, amount, compiling)


def _back_end(torch: Any, device: str) -> str:
    """Return the back end that the default group has for tensors on ``device``."""
    name = str(torch.distributed.get_backend())
    if name != "undefined" and ":" not in name:
        return name
    group = torch.distributed.distributed_c10d._get_default_group()
    return str(group._get_backend(torch.device(device)).name())


def _name_back_end(tensors: Any) -> None:
    """Note the rank once more, now that it is known on which device tensors are."""
    while isinstance(tensors, (list, tuple)) and tensors:
        tensors = tensors[0]
    if hasattr(tensors, "device"):
        _unnamed.pop()(tensors.device.type)


def install(torch: Any, compiling: Callable[[], bool]) -> None:
    """Patch process groups where torch has them."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    library = torch._C._distributed_c10d
    for name in METHODS:
        if hasattr(library.ProcessGroup, name):
            collective(library.ProcessGroup, name, name)
    collective(library.Work, "wait", "wait")
    # DDP's broadcast of buffers, which calls no method of a group; it and its helpers look it up in this module.
    if hasattr(distributed, BUFFERS):
        collective(distributed, BUFFERS, BUFFERS, compiling)
    recorder = process.recorder()
    c10d = importlib.import_module("torch.distributed.distributed_c10d")

    def place(device: str, setup_ns: int | None = None) -> None:
        by = f"torch.distributed/{_back_end(torch, device)}"
        recorder.rank(distributed.get_rank(), distributed.get_world_size(), by, setup_ns)

    def joined(mark: Any, returned: bool) -> None:
        if returned and distributed.is_initialized():
            _unnamed[:] = [place]  # a group may have a back end for each kind of device
            place("cuda" if torch.cuda.is_initialized() else "cpu", now() - mark)

    if distributed.is_initialized():  # before a block of the script began
        joined(now(), returned=True)
    patches.measure(c10d, "init_process_group", lambda _, __: now(), joined, compiling)
    distributed.init_process_group = c10d.init_process_group
    flight = FlightRecorder(torch)
    patches.measure(c10d, "destroy_process_group", lambda _, __: flight.write(), lambda _, __: None, compiling)
    distributed.destroy_process_group = c10d.destroy_process_group
    recorder.at_end.append(flight.write)


class FlightRecorder:
    """What torch kept of the last collectives, written once, before the process groups end."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.recorder = process.recorder()

    def write(self) -> None:
        """Write the line; nothing where no process group is left or nothing was kept."""
        if not self.torch.distributed.is_initialized() or self.recorder.begin is None:
            return
        dump = getattr(self.torch._C._distributed_c10d, "_dump_fr_trace_json", None)
        entries = json.loads(dump(includeCollectives=True)).get("entries", []) if dump is not None else []
        kinds: dict[str, list[int]] = {}
        durations: dict[str, list[int]] = {}
        for entry in entries:
            name = entry["profiling_name"]
            elements = 1
            for dimension in (entry["input_sizes"] or [[0]])[0]:
                elements *= dimension
            sums = kinds.setdefault(name, [0, 0])
            sums[0] += 1
            sums[1] += elements
            if entry.get("duration_ms") is not None:
                durations.setdefault(name, []).append(round(entry["duration_ms"] * 1e6))
        if entries:
            line = {"kind": "flight", "entries": len(entries), "kinds": kinds, "durations": durations}
            self.recorder.file.write({key: value for key, value in line.items() if value})


def install_functional(module: Any) -> None:
    """Patch the waits of functional collectives, which tensor parallelism uses."""
    compiler = getattr(importlib.import_module("torch"), "compiler", None)
    compiling = getattr(compiler, "is_compiling", patches.never)
    if hasattr(module, "wait_tensor"):
        collective(module, "wait_tensor", "wait", compiling)
    asynchronous = getattr(module, "AsyncCollectiveTensor", None)
    for name in ("trigger_wait", "wait"):
        if asynchronous is not None and name in vars(asynchronous):
            collective(asynchronous, name, "wait", compiling)


def goes_through_data_parallel(module: Any) -> bool:
    """Return whether an outermost ``module`` is DDP or holds it."""
    known = set(map(id, data_parallel_modules()))
    return bool(known) and any(id(each) in known for each in module.modules())


def data_parallel_modules() -> list[Any]:
    """Return the DDP modules of this process."""
    return [module for each in _data_parallel if (module := each()) is not None]


def adopt(module: Any) -> None:
    """Know the modules of DDP, of its ``module``, that were made before it was patched."""
    known = set(map(id, data_parallel_modules()))
    for each in gc.get_objects():
        if issubclass(type(each), module.DistributedDataParallel) and id(each) not in known:
            _made(each)


def _made(module: Any) -> None:
    _data_parallel[:] = [each for each in _data_parallel if each() is not None]
    _data_parallel.append(weakref.ref(module))
    for each in module.module.modules():
        _passes.wrapped.add(each)
        _passes.wraps = True


def install_data_parallel(module: Any) -> None:
    """Know the DDP modules, and write their buckets."""
    recorder = process.recorder()
    patches.measure(
        module.DistributedDataParallel,
        "__init__",
        lambda args, _: args[0],
        lambda made, returned: _made(made) if returned else None,
    )

    def step_closed(number: int) -> None:
        if number != BUCKETS_AT_STEP:
            return
        for made in data_parallel_modules():
            logged = made._get_ddp_logging_data()
            sizes = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or ""
            line = {
                "kind": "buckets",
                "bytes": [int(size) for size in str(sizes).split(",") if size.strip()],
                "hook": logged.get("comm_hook") or None,
                "backend": logged.get("backend_name"),
            }
            if line["hook"] in HALVES:
                exchanged = [each for each in made.parameters() if each.requires_grad]
                line["sent_bytes"] = 2 * sum(each.numel() for each in exchanged)
            recorder.file.write(line)

    recorder.at_step.append(step_closed)
