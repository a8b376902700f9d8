"""A session in PaddlePaddle, whatever the strategy."""

from typing import Any

import numpy
import paddle
from paddle import distributed
from paddle.base import core

from steptime.frameworks.paddle.ablation import PaddleAblation
from steptime.frameworks.paddle.loader import open_paddle_batches
from steptime.frameworks.paddle.network import WorkloadLayer, loss_of
from steptime.frameworks.paddle.optimizers import open_optimizer
from steptime.frameworks.paddle.workers import bucket_values, data_parallel, join_group, leave_group
from steptime.worker.imperative import ImperativeSession
from steptime.worker.precision import PROBE, identity_kernel, probe_size
from steptime.worker.process_context import micro_batches
from steptime.worker.usage import compute_threads
from steptime.worker.weights import initial_weights


class PaddleSession(ImperativeSession):
    """One worker's network, optimizer and loader.

    ``layer``
        The ``WorkloadLayer``.
    ``parallel``
        The DataParallel around it; None with one worker, which exchanges nothing.
    """

    def __init__(self, job, context):
        workload, options = job["workload"], job["options"]
        core.set_num_threads(job["threads"])  # Paddle computes with one thread else, despite OMP_NUM_THREADS
        self.exchanges = job["strategy"] == "allreduce" and context.workers > 1
        if self.exchanges:
            join_group(context)
        paddle.seed(job["seed"] * 1009 + context.rank)  # of dropout: each worker draws its own
        self.layer = WorkloadLayer(workload)
        self.layer.load(initial_weights(workload["layers"], job["seed"]))
        self.parallel: Any = data_parallel(self.layer, options) if self.exchanges else None
        self._network = self.parallel or self.layer
        self._criterion = loss_of(workload, job["label_smoothing"])
        multi_tensor = options["multi_tensor"]
        self._optimizer = open_optimizer(self.layer.parameters(), job["optimizer"], multi_tensor=multi_tensor)
        self.batches = open_paddle_batches(job, context)
        self.accumulation = micro_batches(job)
        self._loss: Any = None
        self._outputs: Any = None

    def forward(self, inputs, targets):
        self._outputs = self._network(inputs)
        self._loss = self._criterion(self._outputs, targets)
        return self._loss

    def backward(self, loss):
        loss.backward()

    def gather(self, inputs, targets):
        count, mean = self.accumulation, 0.0
        *parts, last = zip(inputs.chunk(count), targets.chunk(count))
        for part in parts:
            with self.alone():
                loss = self.forward(*part) / count
                loss.backward()
            mean += loss.detach()
        loss = self.forward(*last) / count
        self.backward(loss)
        self._loss = mean + loss.detach()

    def update(self):
        self._optimizer.step()
        self.drop_gradients()

    def drop_gradients(self):
        self._optimizer.clear_grad(set_to_zero=False)

    def alone(self):
        return self.parallel.no_sync() if self.exchanges else super(PaddleSession, self).alone()

    def communication(self):
        rows = [paddle.zeros([values]) for values in bucket_values(self.parallel)]

        def communicate():
            for row in rows:
                distributed.all_reduce(row)

        return communicate

    def set_learning_rate(self, rate):
        self._optimizer.set_lr(rate)

    def outputs(self, inputs):
        self.layer.eval()
        try:
            with paddle.no_grad():
                return self.layer(paddle.to_tensor(inputs)).numpy()
        finally:
            self.layer.train()

    def state(self):
        tensors = {"layer/" + name: tensor for name, tensor in self.layer.state_dict().items()}
        tensors.update(("optimizer/" + name, tensor) for name, tensor in self._optimizer.state_dict().items())
        arrays = {name: numpy.array(tensor) for name, tensor in tensors.items()}
        _, seed, offset, engine = paddle.get_rng_state()[0].__getstate__()
        arrays["random/counters"] = numpy.array([seed, offset], dtype=numpy.uint64)
        arrays["random/engine"] = numpy.array(engine, dtype=numpy.uint8)
        return arrays

    def set_state(self, arrays):
        for name, tensor in self.layer.state_dict().items():
            tensor.set_value(arrays["layer/" + name])
        kept = {name.partition("/")[2]: array for name, array in arrays.items() if name.startswith("optimizer/")}
        self._optimizer.set_state_dict({name: paddle.to_tensor(array) for name, array in kept.items()})
        (own,) = paddle.get_rng_state()
        device, *_ = own.__getstate__()
        kind: Any = type(own)
        restored = kind.__new__(kind)
        restored.__setstate__((device, *arrays["random/counters"].tolist(), arrays["random/engine"].tolist()))
        paddle.set_rng_state([restored])

    def ablate(self):
        return PaddleAblation(self)

    def wait(self):
        """Return at once: on processors a call of Paddle returns when its work is done."""

    def loss(self):
        return float(self._loss)

    def loss_later(self):
        loss = self._loss.detach()
        return lambda: float(loss)

    def parameter_count(self):
        return sum(int(parameter.size) for parameter in self.layer.parameters() if parameter.trainable)

    def output_shape(self):
        samples, *rest = self._outputs.shape
        return [samples * self.accumulation] + rest

    def get_weights(self):
        return self.layer.weights()

    def probe_precision(self):
        size = probe_size("cpu")
        images = paddle.full([1, size.channels, size.image, size.image], PROBE)
        products = {
            "matrix products": paddle.full([size.matrix, size.matrix], PROBE) @ paddle.eye(size.matrix),
            "convolutions": paddle.nn.functional.conv2d(images, paddle.to_tensor(identity_kernel(size))),
        }
        return {what: (float(product.flatten()[0]), product.dtype) for what, product in products.items()}

    def facts(self):
        facts = {
            "framework_version": paddle.__version__,
            "device": str(paddle.get_device()),
            "threads": compute_threads(),
            "onednn": bool(paddle.get_flags("FLAGS_use_mkldnn")["FLAGS_use_mkldnn"]),
            "optimizer": type(self._optimizer).__name__,
        }
        if self.exchanges:
            facts.update(backend="gloo", buckets=len(bucket_values(self.parallel)), running_statistics="per worker")
        return facts

    def close(self):
        self.batches.close()
        if self.exchanges:
            leave_group()

    def abort(self):
        """Leave the group alone: leaving it waits for the others, which may wait for this worker."""
        self.batches.close()
