"""One worker's training loop in PyTorch, whatever the strategy."""

import contextlib

import torch
from torch.nn import functional

from steptime.frameworks.pytorch import strategies
from steptime.frameworks.pytorch.devices import open_device
from steptime.worker.builders.torch import TorchWorkload, prefers_channels_last
from steptime.worker.loaders.torch import open_batches
from steptime.worker.session import Session
from steptime.worker.weights import initial_weights

_LOSSES = {
    "softmax_cross_entropy": functional.cross_entropy,
    "mean_squared_error": functional.mse_loss,
}


class TorchSession(Session):
    """Forward, backward and update of a module that the strategy has wrapped; gradients meet in the backward pass."""

    def __init__(self, job, place):
        workload, options = job["workload"], job["options"]
        self._device = open_device(job, place)
        self._channels_last = {"yes": True, "no": False}.get(options["channels_last"], prefers_channels_last(workload))
        self._built = TorchWorkload(workload)
        self._built.load(initial_weights(workload["layers"], job["seed"]))
        # FSDP shards parameters that are contiguous only; images may have their channels innermost nevertheless.
        innermost = self._channels_last and job["strategy"] != "fsdp"
        layout = torch.channels_last if innermost else torch.preserve_format
        module = self._built.module.to(self._device.torch_device, memory_format=layout).train()
        self._module, self._strategy_facts = strategies.wrap(job, place, self._device, module)
        # The fused update takes ordinary tensors only; for shards, one call for all of them is the next best.
        self._update = "foreach" if job["strategy"] == "fsdp" else "fused"
        self._optimizer = _optimizer(job["optimizer"], self._module, self._update)
        self._forward = torch.compile(self._module) if options["compile"] else self._module
        self._criterion = _LOSSES[workload["loss"]]
        self._mixed = job["precision"] == "bf16"
        self._batches = open_batches(job, place, self._device.torch_device, self._channels_last)
        self._compiled = options["compile"]
        self._loss = None
        self._output_shape = None

    def step(self):
        inputs, targets = next(self._batches)
        with self._precision():
            outputs = self._forward(inputs)
            loss = self._criterion(outputs, targets)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._loss = loss.detach()
        self._output_shape = outputs.shape

    def _precision(self):
        if self._mixed:
            return torch.autocast(self._device.torch_device.type, dtype=torch.bfloat16)
        return contextlib.ExitStack()  # an empty context; nullcontext is newer than Python 3.6

    def wait(self):
        self._device.wait()

    def loss(self):
        return float(self._loss)

    def parameter_count(self):
        return sum(parameter.numel() for parameter in self._module.parameters())

    def output_shape(self):
        return list(self._output_shape)

    def get_weights(self):
        return {
            name: strategies.whole(parameter.detach()).cpu().contiguous().numpy()
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
            "update": self._update,
        }
        facts.update(self._device.facts())
        facts.update(self._strategy_facts)
        return facts

    def close(self):
        self._batches = None  # ends the loader's helpers
        strategies.part()


def _optimizer(settings, module, way):
    return torch.optim.SGD(
        module.parameters(),
        lr=settings["learning_rate"],
        momentum=settings["momentum"],
        weight_decay=settings["weight_decay"],
        **{way: True},
    )
