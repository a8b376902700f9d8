"""A session in torch, whatever the strategy: forward pass and loss here, what follows in the strategy."""

import contextlib
import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.nn import functional

from steptime.libraries.torch.checkpoint import random_state, set_random_state
from steptime.libraries.torch.devices import open_device
from steptime.libraries.torch.loader import open_torch_batches
from steptime.libraries.torch.network import TorchWorkload
from steptime.libraries.torch.own_module import TorchOwnReference, TorchOwnWorkload, open_own_torch_batches
from steptime.libraries.torch.strategy import channels_innermost
from steptime.worker.clock import StepClock
from steptime.worker.precision import PROBE, identity_kernel, probe_size
from steptime.worker.process_context import Job, ProcessContext, micro_batches
from steptime.worker.samples import IGNORED, TOKEN_LOSSES
from steptime.worker.session import AblatedStep, Session
from steptime.worker.weights import initial_weights


def criterion_of(job: Job) -> Callable[[Any, Any], Any]:
    """Return the job's loss as a function of outputs and targets, with its share of smoothed labels in training."""
    if job["workload"]["loss"] == "mean_squared_error":
        return functional.mse_loss
    smoothing = job["label_smoothing"]
    settings: Dict[str, Any] = {"label_smoothing": smoothing} if smoothing else {}
    if job["workload"]["loss"] in TOKEN_LOSSES:

        def of_tokens(outputs: Any, targets: Any) -> Any:
            return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, **settings)

        return of_tokens
    return functools.partial(functional.cross_entropy, **settings) if settings else functional.cross_entropy


MIXED = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The type of products under each precision that is torch's automatic mixed one."""
_FLAT = 2
"""Dimensions of a batch of flat inputs."""


class TorchForward(object):
    """The forward half of a step: batches, and the loss of one in the job's precision.

    ``batches``
        The ``Batches`` of ``(inputs, targets)`` on the device.
    ``output_shape``
        Of the newest batch; None before the first.
    """

    def __init__(self, network: Any, job: Job, batches: Any, strategy: Any) -> None:
        """Take what is called with inputs and gives outputs.

        Args:
            network: the callable.
            job: the job.
            batches: the ``Batches``.
            strategy: the ``TorchStrategy`` that has prepared the network.
        """
        self._compilation = strategy.compilation
        criterion = criterion_of(job)
        if strategy.wraps:  # what it wraps it has compiled
            criterion = self._compilation.compiled(criterion)

        def loss_and_outputs(inputs: Any, targets: Any) -> Tuple[Any, Any]:
            outputs = network(inputs)
            return criterion(outputs, targets), outputs.detach()

        self._network = network
        whole = (lambda function: function) if strategy.wraps else self._compilation.compiled
        self._loss_and_outputs = whole(loss_and_outputs)
        self._mixed = MIXED.get(job["precision"]) if strategy.autocast else None
        self._device_type = strategy.device.torch_device.type
        self.batches = batches
        self.output_shape: Any = None

    def loss(self, inputs: Any, targets: Any) -> Any:
        """Return the loss of one batch."""
        with self._precision():
            loss, outputs = self._loss_and_outputs(inputs, targets)
        self.output_shape = outputs.shape
        return loss

    def outputs(self, inputs: Any) -> Any:
        """Return the network's outputs for one batch as float32, without gradients."""
        with self._precision(), torch.no_grad(), self._compilation.eager():
            return self._network(inputs).float()

    def probe(self, device: Any, weights_type: Any) -> Dict[str, Tuple[float, Any]]:
        """Return the products of ``Session.probe_precision``, computed as in the forward pass.

        Args:
            device: a ``torch.device``.
            weights_type: of the weights and inputs that the forward pass multiplies.
        """
        size = probe_size(device.type)
        ones = torch.eye(size.matrix, device=device, dtype=weights_type)
        images = torch.full((1, size.channels, size.image, size.image), PROBE, device=device, dtype=weights_type)
        kernel = torch.from_numpy(identity_kernel(size)).to(device, weights_type)
        with self._precision(), torch.no_grad():
            products = {
                "matrix products": torch.full_like(ones, PROBE) @ ones,
                "convolutions": functional.conv2d(images, kernel),
            }
        return {what: (float(product.flatten()[0]), product.dtype) for what, product in products.items()}

    def facts(self) -> Dict[str, Any]:
        """Return JSON-ready facts: what is compiled, and autocast's precision."""
        return dict(self._compilation.facts(), autocast=str(self._mixed).rsplit(".", 1)[-1] if self._mixed else None)

    def _precision(self) -> Any:
        if self._mixed:
            return torch.autocast(self._device_type, dtype=self._mixed)
        return contextlib.ExitStack()  # an empty context; nullcontext is newer than Python 3.6


class OwnForward(TorchForward):
    """The forward half of a step of a user's own module, whose batches are ``(batch, None)``."""

    def __init__(self, network: Any, job: Job, batches: Any, strategy: Any, built: TorchOwnWorkload) -> None:
        super(OwnForward, self).__init__(network, job, batches, strategy)
        self.output_shape = [job["batch_per_worker"]]
        self._own_loss = self._compilation.compiled(lambda batch: built.loss(network, batch))

    def loss(self, inputs: Any, targets: Any) -> Any:
        """Return the loss of the batch ``inputs``, which holds its own targets."""
        del targets
        with self._precision():
            return self._own_loss(inputs)


def open_torch_session(job: Job, context: ProcessContext, strategies: Dict[str, Any]) -> Session:
    """Return the session of a job: by its strategy, or the one process that the check of a user's module asks."""
    if "own_reference" in job:
        return TorchOwnReference(job, context)
    return TorchSession(job, context, strategies[job["strategy"]])


class TorchSession(Session):
    """Forward, backward and update of a network that a strategy has wrapped.

    The options ``channels_last`` (yes, no, auto), ``compile`` and ``compile_mode`` of the job are obeyed where the
    framework has them.
    """

    def __init__(self, job: Job, context: ProcessContext, strategy: Any) -> None:
        """Build everything; ``strategy`` is a class as ``TorchStrategy`` is."""
        workload = job["workload"]
        self._device = open_device(job, context)
        torch.manual_seed(job["seed"] * 1009 + context.rank)  # of dropout: each worker draws its own
        self._channels_last = channels_innermost(job)
        own = TorchOwnWorkload(job) if "own" in workload else None
        if own is None:
            self._built: Any = TorchWorkload(workload)
            self._built.load(initial_weights(workload["layers"], job["seed"]))
        else:
            self._built, job = own, own.completed(job)
        self._own_facts = {} if own is None else {"own": own.facts()}
        self._strategy = strategy(job, context, self._device)
        layout = torch.channels_last if self._channels_last and strategy.innermost else torch.preserve_format
        self._built.module.to(self._device.torch_device, memory_format=layout).train()
        device = self._device.torch_device
        if own is None:
            network = self._strategy.prepare(self._built)
            batches = open_torch_batches(job, context, device, self._channels_last)
            self._forward = TorchForward(network, job, batches, self._strategy)
        else:
            # Ahead of the strategy, which may put shards in the place of parameters.
            batches, self._own_facts["own"]["flop_per_sample"] = open_own_torch_batches(job, context, device, own)
            network = self._strategy.prepare(self._built)
            self._forward = OwnForward(network, job, batches, self._strategy, own)
        self._layers = sum(1 for layer in job["workload"]["layers"] if layer["parameters"])
        self._accumulation = micro_batches(job)
        self._loss: Any = None
        self._evaluated_after: Any = None

    def step(self) -> None:
        if self._accumulation > 1:
            self._loss = self._step_in_parts(*next(self._forward.batches))
            return
        loss = self._forward.loss(*next(self._forward.batches))
        self._strategy.update(loss)
        self._loss = loss.detach()

    def _step_in_parts(self, inputs: Any, targets: Any) -> Any:
        """Add up the gradients of equal parts of a batch, of which the last one updates; return the batch's loss."""
        strategy, count = self._strategy, self._accumulation
        share = count if strategy.shares_loss else 1
        *parts, last = zip(inputs.chunk(count), targets.chunk(count))
        total = 0.0
        for part in parts:
            with strategy.alone():
                loss = self._forward.loss(*part)
                strategy.gather(loss / share)
            total = total + loss.detach()
        loss = self._forward.loss(*last)
        strategy.update(loss / share)
        return (total + loss.detach()) / count

    def set_learning_rate(self, rate: float) -> None:
        self._strategy.set_learning_rate(rate)

    def outputs(self, inputs: Any) -> Any:
        if self._loss is None or self._loss is not self._evaluated_after:  # a step has been taken since
            self._strategy.refresh()
            self._evaluated_after = self._loss
        layout = torch.channels_last if self._channels_last and inputs.ndim > _FLAT else torch.contiguous_format
        batch = torch.from_numpy(inputs).to(self._device.torch_device, memory_format=layout)
        self._built.module.eval()
        try:
            return self._forward.outputs(batch).cpu().numpy()
        finally:
            self._built.module.train()
            self._strategy.evaluated()

    def state(self) -> Optional[Dict[str, Any]]:
        state = self._strategy.state(self._built)
        return None if state is None else dict(state, **random_state(self._device.torch_device))

    def set_state(self, arrays: Dict[str, Any]) -> None:
        self._strategy.set_state(self._built, arrays)
        set_random_state(self._device.torch_device, arrays)

    def ablate(self) -> Optional[AblatedStep]:
        ablation = self._strategy.ablate()
        if ablation is not None:
            ablation.attach(self._forward)
        return ablation

    def batches_ahead(self) -> int:
        return self._forward.batches.ahead

    def wait(self) -> None:
        self._device.wait()

    def loss(self) -> float:
        return float(self._loss)

    def loss_later(self) -> Callable[[], float]:
        loss = self._loss.clone()  # CUDA graphs write the next one in its place
        return lambda: float(loss)

    def parameter_count(self) -> int:
        return sum(self._strategy.count(each) for each in self._built.module.parameters() if each.requires_grad)

    def output_shape(self) -> List[int]:
        samples, *rest = self._forward.output_shape
        return [samples * self._accumulation] + rest

    def get_weights(self) -> Optional[Dict[str, Any]]:
        return {
            name: self._strategy.whole(parameter).cpu().contiguous().numpy()
            for name, parameter in self._built.parameters().items()
        }

    def probe_precision(self) -> Dict[str, Tuple[float, Any]]:
        return self._forward.probe(self._device.torch_device, self._strategy.weights_type)

    def clock(self) -> StepClock:
        return self._device.clock()

    def device_peak_bytes(self) -> Optional[int]:
        return self._device.peak_bytes()

    def facts(self) -> Dict[str, Any]:
        facts = {
            "framework_version": torch.__version__,
            "channels_last": self._channels_last,
        }
        facts.update(self._forward.facts())
        facts.update(self._device.facts())
        facts.update(self._strategy.facts())
        facts.update(self._own_facts)
        return facts

    def facts_at_end(self) -> Dict[str, Any]:
        return self._strategy.compilation.facts_at_end(self._layers)

    def staleness(self) -> Optional[Dict[int, int]]:
        return self._strategy.staleness()

    def close(self) -> None:
        self._forward.batches = None  # ends the loader's helpers
        self._strategy.leave()

    def abort(self) -> None:
        self._forward.batches = None
        self._strategy.abort()
