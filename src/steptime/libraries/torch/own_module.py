"""A user's own module in torch, and the one process that its equivalence check compares workers with."""

import contextlib
import inspect
from collections.abc import Mapping
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch import nn
from torch.nn import functional

from steptime.libraries.torch.checkpoint import clip, open_optimizer, set_rate
from steptime.libraries.torch.devices import open_device
from steptime.worker.batches import Batches
from steptime.worker.own_module import (
    OwnWorkload,
    changed,
    flop_per_sample,
    open_own_batches,
    seed_of_rank,
)
from steptime.worker.own_reference import BF16, DOUBLE, SINGLE, Arrays, OwnReference
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.weights import initial_weights

_PAIR = 2
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class TorchOwnWorkload(OwnWorkload):
    """The user's module in place of a ``TorchWorkload``.

    ``layers``
        Its modules that have trained parameters, as the ``layers`` of a workload's JSON: of each its name, its kind
        (``batch_norm`` or ``own``) and its parameters.
    """

    needed = "a torch.nn.Module"
    arrays = "tensors; make some of it: torch.as_tensor(values)"
    to_single = ".float()"

    def __init__(self, job: Job) -> None:
        """Build as ``OwnWorkload`` does; raises ValueError also where the module cannot be trained."""
        if not job["workload"]["own"]["dropout"]:
            _drop_nothing()  # ahead of the import, which may take the functions by their names
        super(TorchOwnWorkload, self).__init__(job)
        if not self.own["dropout"]:
            for each in self.module.modules():
                if isinstance(each, _DROPOUTS):
                    each.p = 0.0
        self.require_trainable({name: each.dtype for name, each in self.parameters().items()})
        self.layers = [_layer(name, module, shapes) for name, module, shapes in self._owners()]

    def is_module(self, value: Any) -> bool:
        return isinstance(value, nn.Module)

    def seed(self, number: int) -> None:
        super(TorchOwnWorkload, self).seed(number)
        torch.manual_seed(number)

    def random_state(self) -> Any:
        return super(TorchOwnWorkload, self).random_state() + (torch.get_rng_state(),)

    def set_random_state(self, state: Any) -> None:
        super(TorchOwnWorkload, self).set_random_state(state)
        torch.set_rng_state(state[-1])

    def is_array(self, value: Any) -> bool:
        return torch.is_tensor(value)

    def bytes_of(self, array: Any) -> bytes:
        values: bytes = array.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        return values

    def joined_arrays(self, arrays: List[Any]) -> Any:
        return torch.cat(arrays)

    def default_loss(self, module: Any, batch: Any) -> Any:
        """Return the loss of a batch.

        Of ``(inputs, targets)`` it is the cross entropy of the outputs, or of their ``logits``, whose classes are the
        last axis where they have more than two; of a mapping the ``loss`` of what the module returns for it, as those
        of Hugging Face do.
        """
        if isinstance(batch, Mapping):
            output = module(**batch)
            loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
            if loss is None:
                raise ValueError(
                    "the module returned no loss for a batch with the keys %s; give it labels, or name a loss of your "
                    "own: loss: my_module:loss" % ", ".join(map(str, batch))
                )
            return loss
        inputs, targets = batch
        outputs = module(inputs)
        outputs = getattr(outputs, "logits", outputs)
        if outputs.dim() > _PAIR and outputs.shape[:-1] == targets.shape:
            return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())
        return functional.cross_entropy(outputs, targets)

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

    def weights(self) -> Arrays:
        return {name: each.detach().cpu().numpy() for name, each in self.parameters().items()}

    def batch_norm(self) -> List[str]:
        return [name for name, each in self.module.named_modules() if _is_batch_norm(each)]

    def flops(self, batch: Any) -> Optional[int]:
        """Return what torch counts on its device ``meta``, which has shapes and no values: nothing is changed."""
        from torch.func import functional_call
        from torch.utils.flop_counter import FlopCounterMode

        step = _Step(self)
        shapes = {name: each.detach().to("meta") for name, each in step.named_buffers()}
        for name, each in step.named_parameters():
            shapes[name] = torch.empty_like(each, device="meta", requires_grad=each.requires_grad)
        counter = FlopCounterMode(display=False)
        try:
            with torch.random.fork_rng(devices=[]), counter:
                functional_call(step, shapes, (changed(self, batch, lambda each: each.to("meta")),)).backward()
        except Exception:  # whatever the user's module asks of values that are not there
            return None
        return int(counter.get_total_flops()) or None


class _Step(nn.Module):
    """Module and loss."""

    def __init__(self, built: TorchOwnWorkload) -> None:
        super(_Step, self).__init__()
        self.module = built.module
        self._loss_of = built.loss

    def forward(self, values: Any) -> Any:
        return self._loss_of(self.module, values)


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
    built = TorchOwnWorkload(job)
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


def open_own_torch_batches(
    job: Job, context: ProcessContext, device: Any, built: TorchOwnWorkload
) -> Tuple[Batches, Optional[int]]:
    """Return the ``Batches`` of the user's loader, each as ``(batch, None)`` on ``device``, and a sample's FLOPs."""
    first, noted = open_own_batches(job, context, built)
    flops = flop_per_sample(job, context, built, first)

    def send(batches: Iterator[Any]) -> Iterator[Tuple[Any, None]]:
        return ((changed(built, batch, lambda each: each.to(device, non_blocking=True)), None) for batch in batches)

    if device.type == "cpu":
        return Batches((batch, None) for batch in noted), flops
    return Batches(noted, send=send), flops


class TorchOwnReference(OwnReference):
    """The module in plain steps of torch."""

    def __init__(self, job: Job, context: ProcessContext) -> None:
        """Build the module and what ``OwnReference`` makes."""
        self._settings = job["optimizer"]
        self._device = open_device(job, context)
        torch.manual_seed(seed_of_rank(job, 0))
        built = TorchOwnWorkload(job)
        self._module = built.module
        self._parameters = built.parameters()
        super(TorchOwnReference, self).__init__(job, context, built)

    def begin(self, bits: int, batch: Any) -> int:
        self._module.to(self._device.torch_device).train()
        bits = SINGLE if bits == DOUBLE and not self._takes_double(batch) else bits
        self._mixed = bits == BF16
        self._type = torch.float64 if bits == DOUBLE else torch.float32
        self._module.to(self._type)
        self._optimizer = open_optimizer(list(self._parameters.values()), self._settings, "default")
        self.synchronised = any(isinstance(each, nn.SyncBatchNorm) for each in self._module.modules())
        return bits

    def _takes_double(self, batch: Any) -> bool:
        """Say whether the module computes in double precision; some make values of float32 inside."""
        self._module.to(torch.float64)
        kept = {name: each.clone() for name, each in self._module.named_buffers()}
        try:
            with torch.no_grad():
                self._built.loss(self._module, self._placed(batch, torch.float64))
            return True
        except (RuntimeError, TypeError):
            return False
        finally:
            for name, each in self._module.named_buffers():
                each.copy_(kept[name])

    def _placed(self, batch: Any, kind: Any) -> Any:
        def place(each: Any) -> Any:
            return each.to(self._device.torch_device, kind if each.is_floating_point() else each.dtype)

        return changed(self._built, batch, place)

    def values(self) -> Arrays:
        return {name: each.detach().cpu().numpy().copy() for name, each in self._parameters.items()}

    def put(self, values: Arrays) -> None:
        with torch.no_grad():
            for name, each in self._parameters.items():
                each.copy_(torch.from_numpy(values[name]))

    def backward(self, batch: Any, share: float) -> Any:
        mixed: Any = contextlib.ExitStack()
        if self._mixed:
            mixed = torch.autocast(self._device.torch_device.type, dtype=torch.bfloat16)
        with mixed:
            loss = self._built.loss(self._module, self._placed(batch, self._type))
        self._built.require_number(loss)
        (loss * share).backward()
        return loss.detach()

    def update(self) -> None:
        clip(list(self._parameters.values()), self._settings)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def set_learning_rate(self, rate: float) -> None:
        set_rate(self._optimizer, rate)

    def wait(self) -> None:
        self._device.wait()

    def library_facts(self) -> Dict[str, Any]:
        return dict(self._device.facts(), framework_version=torch.__version__)
