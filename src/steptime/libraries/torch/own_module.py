"""A user's own module in torch: built from a seed, with its batches and its loss, and what is read from it.

``build()`` returns the module, ``loader(rank, size, batch)`` an iterable of batches, and ``loss(module, batch)`` the
loss of one. All workers build from the same seed; what a loader draws, each worker draws from a seed of its own.

A user's own module: its files and their import, which happens in processes of a launch alone.

``Own`` is the ``own`` of a job's workload: ``folder`` from which the files are imported, ``build``, ``data`` and
``loss`` as ``PACKAGE.MODULE:FUNCTION``, and the ``files`` that are imported from the folder with their SHA-256.
"""

import contextlib
import hashlib
import importlib
import inspect
import itertools
import os
import random
import sys
import traceback
import zlib
from collections.abc import Mapping
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy
import torch
from torch import nn
from torch.nn import functional

from steptime.worker.batches import Batches, DrawnBatches
from steptime.worker.process_context import Job
from steptime.worker.weights import initial_weights

Own = Dict[str, Any]


def load_function(own: Own, key: str, framework: str) -> Callable[..., Any]:
    """Import and return the function that ``own[key]`` names.

    Raises ValueError where the files are not those that were planned, another module of that name is imported, a
    package is missing, or what is named cannot be called.
    """
    module_name, _, function_name = own[key].partition(":")
    for name, digest in own["files"]:
        path = os.path.join(own["folder"], name)
        with open(path, "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != digest:
                raise ValueError(
                    "%s has changed since the run was planned; run it again, which makes trials of their own of it"
                    % path
                )
    if own["folder"] not in sys.path:
        sys.path.insert(1, own["folder"])  # behind the run folder, ahead of packages, as Python does for a script
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        missing = getattr(error, "name", None) or ""
        if not missing or missing.split(".")[0] == module_name.split(".")[0]:
            raise ValueError("%s cannot be imported from %s: %s" % (module_name, own["folder"], error)) from error
        raise ValueError(
            "%s imports %s, which this environment lacks; name an interpreter of yours that has it: "
            "environments: {%s: {kind: existing, python: /path/to/python}}" % (module_name, missing, framework)
        ) from error
    _require_own_file(module, own)
    found = getattr(module, function_name, None)
    if not callable(found):
        raise ValueError("%s cannot be called; name a function" % own[key])
    return found


def _require_own_file(module: Any, own: Own) -> None:
    path = os.path.realpath(getattr(module, "__file__", None) or "")
    known = {os.path.realpath(os.path.join(own["folder"], name)) for name, _ in own["files"]}
    if path not in known:
        raise ValueError(
            "the name %s means %s in this environment, not a file of %s; rename your module"
            % (module.__name__, path or "a module without a file", own["folder"])
        )


_PAIR = 2
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_DIGITS = 16


def seed_all(seed: int) -> None:
    """Seed what Python, numpy and torch draw."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)  # noqa: NPY002 - that users' code may draw from
    torch.manual_seed(seed)


def seed_of_rank(job: Job, rank: int) -> int:
    """Return the seed of what a worker draws, as its dropout and its batches."""
    return job["seed"] * 1009 + rank


@contextlib.contextmanager
def _of_user(what: str, own: Dict[str, Any]) -> Iterator[None]:
    """Say of an error in the user's code where it is: its last line there."""
    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(sys.exc_info()[2])
        inside = [each for each in frames if each.filename.startswith(own["folder"] + os.sep)]
        if not inside:
            raise
        place = "%s, line %s" % (inside[-1].filename, inside[-1].lineno)
        raise ValueError("%s failed with %s: %s (%s)" % (what, type(error).__name__, error, place)) from error


class OwnWorkload(object):
    """The user's module in place of a ``TorchWorkload``.

    ``module``
        What ``build()`` returned.
    ``layers``
        Its modules that have trained parameters, as the ``layers`` of a workload's JSON: of each its name, its kind
        (``batch_norm`` or ``own``) and its parameters.
    """

    def __init__(self, job: Job) -> None:
        """Import the user's files and build the module; its weights are those that it gives itself.

        Raises ValueError, which names the place, where the module cannot be built or trained.
        """
        self.own = job["workload"]["own"]
        self.framework = job["framework"]
        if not self.own["dropout"]:
            _drop_nothing()  # ahead of the import, which may take the functions by their names
        build = load_function(self.own, "build", self.framework)
        with torch.random.fork_rng(devices=[]):
            seed_all(job["seed"])
            with _of_user("%s()" % self.own["build"], self.own):
                self.module = build()
        if not isinstance(self.module, nn.Module):
            raise ValueError(
                "%s() returned %s, not a torch.nn.Module" % (self.own["build"], type(self.module).__name__)
            )
        if not self.own["dropout"]:
            for each in self.module.modules():
                if isinstance(each, _DROPOUTS):
                    each.p = 0.0
        self._require_trainable()
        self.layers = [_layer(name, module, shapes) for name, module, shapes in self._owners()]
        loss = load_function(self.own, "loss", self.framework) if self.own["loss"] else None
        self.loss: Callable[[Any, Any], Any] = loss or default_loss
        self.has_own_loss = loss is not None

    def _require_trainable(self) -> None:
        trained = self.parameters()
        if not trained:
            raise ValueError("%s() returned a module without a parameter to train" % self.own["build"])
        for name, parameter in trained.items():
            if parameter.dtype != torch.float32:
                raise ValueError(
                    "%s is %s, and weights are trained in float32; build the module in float32, and set precision in "
                    "the study" % (name, parameter.dtype)
                )

    def _owners(self) -> Iterator[Tuple[str, Any, List[Tuple[str, List[int]]]]]:
        seen = set()
        for prefix, module in self.module.named_modules():
            own = []
            for role, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad and id(parameter) not in seen:
                    seen.add(id(parameter))
                    own.append((role, list(parameter.shape)))
            if own:
                yield prefix, module, own

    def parameters(self) -> Dict[str, Any]:
        """Return ``{name: nn.Parameter}`` of what is trained, under the module's own names."""
        return {name: each for name, each in self.module.named_parameters() if each.requires_grad}

    def completed(self, job: Job) -> Job:
        """Return ``job`` with the layers of its workload, which only a process of the launch knows."""
        return dict(job, workload=dict(job["workload"], layers=self.layers))

    def weights(self) -> Dict[str, Any]:
        """Return ``{name: array}`` of what is trained."""
        return {name: each.detach().cpu().numpy() for name, each in self.parameters().items()}

    def facts(self) -> Dict[str, Any]:
        """Return JSON-ready facts of the module as it was built."""
        digest = hashlib.sha256()
        for name, values in sorted(self.weights().items()):
            digest.update(name.encode())
            digest.update(numpy.ascontiguousarray(values).tobytes())
        trained = self.parameters().values()
        return {
            "parameters": sum(each.numel() for each in trained),
            "gradient_bytes": sum(each.numel() * each.element_size() for each in trained),
            "first_weights": digest.hexdigest()[:_DIGITS],
            "batch_norm": [name for name, each in self.module.named_modules() if _is_batch_norm(each)],
        }


def _is_batch_norm(module: Any) -> bool:
    return isinstance(module, _BATCH_NORMS) and not isinstance(module, nn.SyncBatchNorm)


def _layer(name: str, module: Any, shapes: List[Tuple[str, List[int]]]) -> Dict[str, Any]:
    prefix = name + "." if name else ""
    return {
        "name": name,
        "kind": "batch_norm" if _is_batch_norm(module) else "own",
        "parameters": [{"name": prefix + role, "role": role, "shape": shape} for role, shape in shapes],
    }


def first_weights(job: Job) -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """Return the layers of a job's workload and ``{name: array}`` of its first weights."""
    workload = job["workload"]
    if "own" not in workload:
        return workload["layers"], initial_weights(workload["layers"], job["seed"])
    built = OwnWorkload(job)
    return built.layers, built.weights()


def _drop_nothing() -> None:
    """Let torch's functions drop nothing in this process, which checks."""
    for name in _DROPPING:
        original = getattr(functional, name)
        place = list(inspect.signature(original).parameters).index("p")
        setattr(functional, name, _with_argument(original, "p", place))
    attention = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = _with_argument(attention, "dropout_p", 4)


_DROPPING = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


def _with_argument(function: Any, name: str, place: int) -> Callable[..., Any]:
    """Return ``function``, called with 0 for its argument ``name``, the one at ``place``."""

    def called(*values: Any, **named: Any) -> Any:
        if len(values) > place:
            values = values[:place] + (0.0,) + values[place + 1 :]
        else:
            named[name] = 0.0
        return function(*values, **named)

    return called


def default_loss(module: Any, batch: Any) -> Any:
    """Return the loss of a batch.

    Of ``(inputs, targets)`` it is the cross entropy of the outputs, or of their ``logits``, whose classes are the last
    axis where they have more than two; of a mapping the ``loss`` of what the module returns for it, as those of
    Hugging Face do.
    """
    if isinstance(batch, Mapping):
        output = module(**batch)
        loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if loss is None:
            raise ValueError(
                "the module returned no loss for a batch with the keys %s; give it labels, or name a loss of your own: "
                "loss: my_module:loss" % ", ".join(map(str, batch))
            )
        return loss
    inputs, targets = batch
    outputs = module(inputs)
    outputs = getattr(outputs, "logits", outputs)
    if outputs.dim() > _PAIR and outputs.shape[:-1] == targets.shape:
        return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
    return functional.cross_entropy(outputs, targets)


def tensors_of(batch: Any) -> Iterator[Tuple[str, Any]]:
    """Yield the tensors of a batch with their places in it."""
    if torch.is_tensor(batch):
        yield "the batch", batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from ((repr(key), each) for _, each in tensors_of(value))
    elif isinstance(batch, (tuple, list)):
        names = ("inputs", "targets") if len(batch) == _PAIR else [str(place) for place in range(len(batch))]
        for name, value in zip(names, batch):
            yield from ((name, each) for _, each in tensors_of(value))


def changed(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return a batch with ``change`` applied to each of its tensors."""
    if torch.is_tensor(batch):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: changed(value, change) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        values = [changed(value, change) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    return batch


class OwnLoader(object):
    """The batches of one rank, endless: begun anew where the user's iterable ends. Each is looked at.

    ``numbers``
        How many batches each pass had that is over.
    """

    def __init__(self, built: OwnWorkload, rank: int, size: int, batch: int) -> None:
        self._built = built
        self._rank, self._size, self._batch = rank, size, batch
        self._give = load_function(built.own, "data", built.framework)
        self.numbers: List[int] = []

    def __iter__(self) -> Iterator[Any]:
        own, number, iterable = self._built.own, 0, None
        call = "%s(rank=%d, size=%d, batch=%d)" % (own["data"], self._rank, self._size, self._batch)
        while True:
            with _of_user(call, own):
                iterable = self._give(self._rank, self._size, self._batch) if iterable is None else iterable
                try:
                    batches = iter(iterable)
                except TypeError as error:
                    raise ValueError(
                        "%s returned %s, not an iterable of batches" % (call, type(iterable).__name__)
                    ) from error
            before = number
            while True:
                with _of_user(call, own):
                    try:
                        batch = next(batches)
                    except StopIteration:
                        break
                number += 1
                self._require(batch, number, call)
                yield batch
            if number == before:
                raise ValueError(
                    "%s ended without a batch%s" % (call, " in its pass %d" % (len(self.numbers) + 1) if number else "")
                )
            self.numbers.append(number - before)
            iterable = None if batches is iterable else iterable  # a generator gives its batches once

    def _require(self, batch: Any, number: int, call: str) -> None:
        """Raise ValueError for a batch that cannot be trained, with what is wrong of it."""
        where = "batch %d of %s" % (number, call)
        pairs = isinstance(batch, (tuple, list)) and len(batch) == _PAIR
        if not self._built.has_own_loss and not pairs and not isinstance(batch, Mapping):
            kind = type(batch).__name__
            kind += " of %d" % len(batch) if isinstance(batch, (tuple, list)) else ""
            raise ValueError(
                "%s is a %s; give (inputs, targets) or a mapping, or name a loss of your own that takes it"
                % (where, kind)
            )
        found = list(tensors_of(batch))
        if not found:
            raise ValueError("%s holds no tensors; make some of it: torch.as_tensor(values)" % where)
        for name, tensor in found[:1] if self._built.has_own_loss else found:
            if tensor.dim() == 0 or tensor.shape[0] != self._batch:
                samples = "no samples" if tensor.dim() == 0 else "%d samples" % tensor.shape[0]
                raise ValueError(
                    "%s has %s in %s, and %d are asked for; give batches of equal size, as drop_last=True of a "
                    "DataLoader does" % (where, samples, name, self._batch)
                )
        for name, tensor in found:
            if tensor.dtype == torch.float64:
                raise ValueError("%s has float64 in %s, and weights are float32; add .float()" % (where, name))


class _KeptBatch(object):
    """A batch of a kept step, whose checksum is computed when the timed steps are over."""

    def __init__(self, batch: Any, samples: int) -> None:
        self._batch = batch
        self.samples = samples

    def checksum(self) -> int:
        """Return the CRC-32 of all tensors, without its first bit."""
        return checksum_of(self._batch)


def checksum_of(batch: Any) -> int:
    """Return the CRC-32 of the bytes of a batch's tensors, without its first bit."""
    found = 0
    for _, tensor in tensors_of(batch):
        found = zlib.crc32(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes(), found)
    return found & 0x7FFFFFFF


def open_own_batches(job: Job, context: Any, device: Any, built: OwnWorkload) -> Tuple[Batches, Optional[int]]:
    """Return the ``Batches`` of the user's loader, each as ``(batch, None)`` on ``device``, and the FLOPs of a sample.

    Worker 0 alone counts them; None on the others, and where they cannot be counted.
    """
    seed_all(seed_of_rank(job, context.rank))
    loader = iter(OwnLoader(built, context.rank, context.workers, job["batch_per_worker"]))
    first, flops = next(loader), None
    if context.rank == 0:
        flops = measured_flops(built, first)
    kept = ((each, _KeptBatch(each, job["batch_per_worker"])) for each in itertools.chain([first], loader))
    noted = (each for each, _ in DrawnBatches.note(kept, context.rank))
    of_sample = None if flops is None else flops // job["batch_per_worker"]

    def send(batches: Iterator[Any]) -> Iterator[Tuple[Any, None]]:
        return ((changed(batch, lambda each: each.to(device, non_blocking=True)), None) for batch in batches)

    if device.type == "cpu":
        return Batches((batch, None) for batch in noted), of_sample
    return Batches(noted, send=send), of_sample


def measured_flops(built: OwnWorkload, batch: Any) -> Optional[int]:
    """Return the FLOPs of the forward and the backward pass of a batch; None if they cannot be counted.

    Counted by torch on its device ``meta``, which has shapes and no values, so that nothing is computed or changed. A
    multiplication and an addition count as two; nothing but matrix products, convolutions and attention counts.
    """
    from torch.func import functional_call
    from torch.utils.flop_counter import FlopCounterMode

    class Step(nn.Module):
        def __init__(self, module: Any) -> None:
            super(Step, self).__init__()
            self.module = module

        def forward(self, values: Any) -> Any:
            return built.loss(self.module, values)

    step = Step(built.module)
    shapes = {name: each.detach().to("meta") for name, each in step.named_buffers()}
    for name, each in step.named_parameters():
        shapes[name] = torch.empty_like(each, device="meta", requires_grad=each.requires_grad)
    counter = FlopCounterMode(display=False)
    try:
        with torch.random.fork_rng(devices=[]), counter:
            functional_call(step, shapes, (changed(batch, lambda each: each.to("meta")),)).backward()
    except Exception:  # whatever the user's module asks of values that are not there
        return None
    return int(counter.get_total_flops()) or None
