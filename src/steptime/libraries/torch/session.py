"""One worker's training loop in torch, whatever the strategy."""

import contextlib

import torch
from torch.nn import functional

from steptime.libraries.torch.devices import open_device
from steptime.libraries.torch.loader import batches_ahead, open_batches
from steptime.libraries.torch.network import TorchWorkload
from steptime.libraries.torch.strategy import channels_innermost
from steptime.worker.session import Session
from steptime.worker.weights import initial_weights

_LOSSES = {
    "softmax_cross_entropy": functional.cross_entropy,
    "mean_squared_error": functional.mse_loss,
}


def _nothing(_):
    """Stand for an update in a step that ends with its forward pass."""


class TorchSession(Session):
    """Forward, backward and update of a network that a strategy has wrapped.

    The options ``channels_last`` (yes, no, auto) and ``compile`` of the job are obeyed where the room has them.
    """

    def __init__(self, job, context, strategy):
        """Build everything; ``strategy`` is a class as ``TorchStrategy`` is."""
        workload, options = job["workload"], job["options"]
        self._device = open_device(job, context)
        self._channels_last = channels_innermost(job)
        self._compiled = options.get("compile", False)
        self._built = TorchWorkload(workload)
        self._built.load(initial_weights(workload["layers"], job["seed"]))
        self._strategy = strategy(job, context, self._device)
        layout = torch.channels_last if self._channels_last and strategy.innermost else torch.preserve_format
        self._built.module.to(self._device.torch_device, memory_format=layout).train()
        forward = self._strategy.prepare(self._built)
        self._forward = torch.compile(forward) if self._compiled else forward
        self._criterion = _LOSSES[workload["loss"]]
        self._mixed = job["precision"] == "bf16"
        self._batches = open_batches(job, context, self._device.torch_device, self._channels_last)
        self._ahead = batches_ahead(job["loader"], self._device.torch_device)
        self._loss = None
        self._output_shape = None
        self._stages = None

    def step(self):
        inputs, targets = next(self._batches)
        with self._precision():
            outputs = self._forward(inputs)
            loss = self._criterion(outputs, targets)
        self._strategy.update(loss)
        self._loss = loss.detach()
        self._output_shape = outputs.shape

    def stages(self):
        self._stages = self._strategy.take_apart()
        if self._stages is None:
            return {}
        updates = self._stages.stages()
        held = next(self._batches)
        stages = {name: self._stage(name, held, update) for name, update in updates.items()}
        stages.update(forward=self._stage("forward", held, _nothing), input=lambda: next(self._batches))
        if self._device.torch_device.type == "cuda":
            pinned = [part.cpu().pin_memory() for part in held]
            stages["h2d"] = self._stage("h2d", pinned, updates.get("exchange", updates.get("local")))
        communication = self._stages.communication()
        if communication is not None:
            stages["communication"] = communication
        return stages

    def _stage(self, name, held, update):
        stages, device = self._stages, self._device.torch_device

        def run():
            stages.enter(name)
            inputs, targets = (part.to(device, non_blocking=True) for part in held)  # themselves, if they are there
            with self._precision():
                loss = self._criterion(self._forward(inputs), targets)
            update(loss)
            stages.leave(name)

        return run

    @property
    def marks(self):
        if self._stages is None or self._device.torch_device.type == "cuda":
            return ()  # on a device, the host would have to wait for it at every mark
        return self._stages.marks

    def marked_step(self, mark):
        stages, wanted = self._stages, self._stages.marks
        stages.enter("marked")
        inputs, targets = next(self._batches)
        mark("input")
        with self._precision():
            loss = self._criterion(self._forward(inputs), targets)
        if "forward" in wanted:
            mark("forward")
        stages.marked(loss, mark)
        stages.leave("marked")
        self._loss = loss.detach()

    def transfers(self):
        return self._stages.transfers()

    def native(self):
        return self._stages.native()

    def _precision(self):
        if self._mixed:
            return torch.autocast(self._device.torch_device.type, dtype=torch.bfloat16)
        return contextlib.ExitStack()  # an empty context; nullcontext is newer than Python 3.6

    def batches_ahead(self):
        return self._ahead

    def wait(self):
        self._device.wait()

    def loss(self):
        return float(self._loss)

    def parameter_count(self):
        return sum(self._strategy.count(parameter) for parameter in self._built.module.parameters())

    def output_shape(self):
        return list(self._output_shape)

    def get_weights(self):
        return {
            name: self._strategy.whole(parameter).cpu().contiguous().numpy()
            for name, parameter in self._built.parameters().items()
        }

    def clock(self):
        return self._device.clock()

    def facts(self):
        facts = {
            "framework_version": torch.__version__,
            "channels_last": self._channels_last,
            "compile": self._compiled,
            "autocast": "bfloat16" if self._mixed else None,
        }
        facts.update(self._device.facts())
        facts.update(self._strategy.facts())
        return facts

    def staleness(self):
        return self._strategy.staleness()

    def close(self):
        self._batches = None  # ends the loader's helpers
        self._strategy.part()

    def abort(self):
        self._batches = None
        self._strategy.abort()
