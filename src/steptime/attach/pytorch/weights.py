"""Sums of a few weights, by which a reader can tell whether ranks hold the same: after steps 1, 2, 4, 8 and so on.

With them goes what their arithmetic is judged by: how many there are, and in which precision they multiply.
"""

from __future__ import annotations

import math
import random
import sys
import weakref
from typing import Any

from .. import patches, process
from ..object_numbers import number_of
from . import collectives
from .attention import attends

PARAMETERS = 16
ELEMENTS = 64
# Forwards whose graph is looked at for attention.
LOOKS = 4
# Of one that does not lie in one piece, and is copied.
LARGEST_COPY = 100_000
# Share of all weights in arrays of three dimensions, above which these are of experts.
STACKED = 0.1
# Libraries by which a script may exchange weights unseen.
CHANNELS = ("mpi4py", "ray", "cupyx.distributed", "hivemind", "bagua", "byteps")
# That join processes by rules of their own.
JOINING = ("accelerate", "lightning", "deepspeed")
# Names of precisions, as data sheets have them; float32 is looked at further.
PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}
FLOAT32, TF32 = "fp32", "tf32"
# In names of modules that multiply in a precision of their own, or whose weights lie in pieces: it is not known then.
_OWN_PRECISION = ("fp8", "float8", "fp4", "4bit", "8bit", "fsdp", "fullysharded")


class Weights:
    """The parameters that were trained, in the order in which they were first used, which ranks have in common."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.recorder = process.recorder()
        self.known: list[weakref.ref[Any]] = []
        # Whether a module attends, some weights are not trained, and a token meets a few of several experts.
        self.attention = self.frozen = self.routed = False
        self.looks = LOOKS
        self.averaging: set[int] = set()  # over how many ranks libraries average gradients of each outermost module
        self.looked_up: set[int] = set()  # tables of embeddings, of which a token takes a row without multiplying
        self.precision = Precision(torch)

    def add(self, parameter: Any) -> None:
        """Take a further parameter."""
        self.known.append(weakref.ref(parameter))

    def look_into(self, result: Any) -> None:
        """Learn whether the ``result`` of a forward was attended to, from the graphs of a few of the first."""
        if self.looks and not self.attention:
            self.looks -= 1
            self.attention = attends(result)

    def look_at(self, module: Any) -> None:
        """Learn whether an outermost module is a transformer that is trained whole."""
        self.attention = self.attention or any("ttention" in type(each).__name__ for each in module.modules())
        self.frozen = self.frozen or not all(each.requires_grad for each in module.parameters())
        self.routed = self.routed or routes(self.torch, module)
        self.averaging.add(averaging_ranks(module))
        tables: set[int] = set()
        multiplied: set[int] = set()
        for each in module.modules():
            own = {number_of(parameter) for parameter in each.parameters(recurse=False)}
            (tables if isinstance(each, self.torch.nn.Embedding) else multiplied).update(own)
        self.looked_up |= tables - multiplied
        self.precision.look_at(module)

    def step_closed(self, number: int) -> None:
        """Write the line behind every step whose number is a power of two."""
        if number & (number - 1) or self._is_traced():
            return
        try:
            alive = [parameter for each in self.known if (parameter := each()) is not None]
            plain = [each for each in alive if self._is_plain(each)]
            sums = [self._sum(plain[at]) for at in drawn(len(plain))]
        except Exception:  # a device that cannot be read: what is not known is left out
            self.recorder.at_step.remove(self.step_closed)
            return
        line = {
            "kind": "weights",
            "step": number,
            "parameters": len(alive),
            "pieces": len(alive) - len(plain),
            "sums": sums,
            "attention": self.attention,
            "frozen": self.frozen,
            "routed": self.routed,
            "elements": self._elements(plain) if len(plain) == len(alive) else 0,
            **self.precision.to_line(),
            "shared": any(each.is_shared() for each in plain[:1] if not each.is_cuda),
            "data_parallel": len(collectives.data_parallel_modules()),
            "averaging": min(self.averaging) if len(self.averaging) == 1 else 0,
            "bypassed": collectives.data_parallel_passes().bypassed,
            "channels": [*(name for name in CHANNELS if name in sys.modules), *self._calls()],
            "joining": [name for name in JOINING if name in sys.modules],
        }
        self.recorder.file.write({key: value for key, value in line.items() if value})

    def _elements(self, parameters: list[Any]) -> int:
        """Return how many numbers multiply in ``parameters``."""
        return (
            0
            if self.frozen or self.routed
            else sum(each.numel() for each in parameters if number_of(each) not in self.looked_up)
        )

    def _is_traced(self) -> bool:
        """Return whether reading a weight would be recorded by somebody, or is forbidden."""
        torch = self.torch
        modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
        return bool(modes and modes()) or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())

    def _is_plain(self, parameter: Any) -> bool:
        """Return whether reading it is cheap and asks no other rank: shards of a sharded one are left alone."""
        return (
            type(parameter) is self.torch.nn.Parameter
            and not parameter.is_meta
            and parameter.numel() > 0
            and (parameter.is_contiguous() or parameter.numel() <= LARGEST_COPY)
        )

    def _sum(self, parameter: Any) -> float | None:
        with self.torch.no_grad():
            found = math.fsum(parameter.detach().flatten()[:ELEMENTS].tolist())
        return found if math.isfinite(found) else None

    def _calls(self) -> list[str]:
        """Return ways inside of torch by which ranks may exchange unseen: remote calls, and compiled collectives."""
        api = sys.modules.get("torch.distributed.rpc.api")
        compiler = sys.modules.get("torch._dynamo.utils")
        found = ["torch.distributed.rpc"] if api is not None and api._is_current_rpc_agent_set() else []
        if compiler is not None and compiler.counters["stats"].get("unique_graphs"):
            found.append("torch.compile")
        return [*found, "another thread"] if self.recorder.elsewhere else found


def drawn(parameters: int) -> list[int]:
    """Return which of ``parameters`` are looked at, the same on all ranks; not every so many, as layers repeat."""
    if parameters <= PARAMETERS:
        return list(range(parameters))
    return sorted(random.Random(parameters).sample(range(parameters), PARAMETERS))  # noqa: S311 - a draw of places


def routes(torch: Any, module: Any) -> bool:
    """Return whether a token may meet few of the weights of ``module``, which then has experts.

    They are a list beside a layer with an output for each, or a good part of all weights in arrays of three dimensions.
    """
    for each in module.modules():
        children = list(each.children())
        outputs = {child.out_features for child in children if isinstance(child, torch.nn.Linear)}
        if any(
            isinstance(child, torch.nn.ModuleList) and len(child) > 1 and len(child) in outputs for child in children
        ):
            return True
    convolutions = (torch.nn.modules.conv._ConvNd, torch.nn.Bilinear)
    layers = [each for each in module.modules() if not isinstance(each, convolutions)]
    sizes = [size for each in layers for own in each.parameters(recurse=False) if (size := _stacked_size(own))]
    return bool(sizes) and sum(sizes) > STACKED * sum(map(_size, module.parameters()))


def _stacked_size(parameter: Any) -> int:
    """Return the elements of an array of three dimensions; 0 of any other, and where its size is not known yet."""
    try:
        return _size(parameter) if parameter.dim() == 3 and parameter.shape[0] > 1 else 0  # noqa: PLR2004
    except Exception:
        return 0


def _size(parameter: Any) -> int:
    """Return the elements of an array; 0 where its library does not tell, or not yet."""
    try:
        return int(parameter.numel())
    except Exception:
        return 0


def averaging_ranks(module: Any) -> int:
    """Return over how many ranks FSDP or DeepSpeed average the gradients of ``module``; 0 where neither is seen to.

    Ranks that hold pieces of one layer or of one network (tensor and pipeline parallel) are not among these.
    """
    try:
        widths = {width for each in module.modules() if (width := _width(each))}
    except Exception:  # a release whose inner names are others
        return 0
    return widths.pop() if len(widths) == 1 else 0


def _width(module: Any) -> int:
    if hasattr(module, "_get_fsdp_state"):  # FSDP2
        group = module._get_fsdp_state()._fsdp_param_group
        mesh = group.mesh_info if group is not None else None
        # Groups that hold copies of the same shards count, too; a mesh of copies alone is DDP's.
        return int(getattr(mesh, "shard_mesh_size", 0) * getattr(mesh, "replicate_mesh_size", 1))
    name = type(module).__name__
    if name == "FullyShardedDataParallel":
        copies = getattr(module, "_inter_node_pg", None)
        return int(module.process_group.size() * (copies.size() if copies is not None else 1))
    return int(module.dp_world_size) if name in ("DeepSpeedEngine", "DeepSpeedHybridEngine") else 0


class Precision:
    """In which precision the modules multiply: that of autocasts around or in them, else that of their weights."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.types: set[str] = set()
        self.cast: set[str] = set()
        self.devices: set[str] = set()
        self.convolves = self.unknown = False
        mode = getattr(getattr(torch.amp, "autocast_mode", None), "autocast", None)
        if mode is None:
            self.unknown = True
        else:
            patches.measure(mode, "__enter__", self._enter, _nothing)

    def _enter(self, args: Any, kwargs: Any) -> Any:  # noqa: ARG002 - the form of all
        # Also while a compiler traces one that lies in what it compiles.
        if args[0]._enabled and self.torch.is_grad_enabled():
            self.cast.add(_named(args[0].fast_dtype))

    def look_at(self, module: Any) -> None:
        """Learn the types of the weights of an outermost module that is trained."""
        for parameter in module.parameters():
            self.devices.add(parameter.device.type)
            if parameter.requires_grad or parameter.is_floating_point():
                self.types.add(_named(parameter.dtype))
        for each in module.modules():
            name = type(each).__name__.lower()
            own = any(part in name for part in _OWN_PRECISION) or name == "dataparallel"
            self.unknown = self.unknown or own or getattr(each, "mixed_precision", None) is not None
            self.convolves = self.convolves or isinstance(each, self.torch.nn.modules.conv._ConvNd)

    def to_line(self) -> dict[str, Any]:
        """Return the keys of the line: one device and its threads, and precisions, of which none are not known."""
        if self.unknown or len(self.devices) != 1:
            return {}
        (device,) = self.devices
        names: set[str] = set()
        for name in self.cast or self.types:
            names |= self._of_float32(device) if name == "float32" else {PRECISIONS.get(name, name)}
        threads = self.torch.get_num_threads() if device == "cpu" else 0
        return {"precisions": sorted(names), "device": device, "threads": threads}

    def _of_float32(self, device: str) -> set[str]:
        """Return what multiplies numbers of 32 bits; by cuDNN's own setting in convolutions."""
        if device != "cuda":
            return {FLOAT32}
        shorter = self.torch.get_float32_matmul_precision() != "highest"
        names = {TF32 if shorter else FLOAT32}
        if self.convolves:
            names.add(TF32 if self.torch.backends.cudnn.allow_tf32 else FLOAT32)
        return names


def _named(kind: Any) -> str:
    return str(kind).rpartition(".")[2]


def _nothing(mark: Any, returned: bool) -> None:
    """End what was not measured."""
