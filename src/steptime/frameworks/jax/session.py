"""One worker's training loop in JAX, whatever the strategy."""

from typing import Any, Tuple

import jax
import numpy

from steptime.frameworks.jax.loader import open_jax_batches
from steptime.frameworks.jax.mesh import MeshPlacement, leave_mesh, open_mesh
from steptime.frameworks.jax.network import JaxNetwork
from steptime.frameworks.jax.own_module import open_own_training
from steptime.frameworks.jax.training_step import JaxAblation, JaxStep, first_state
from steptime.worker.clock import WaitingClock
from steptime.worker.samples import TOKEN_LOSSES
from steptime.worker.session import Session
from steptime.worker.weights import channels_first, channels_last, initial_weights, shape_channels_first


class JaxSession(Session):
    """A state that one compiled function takes from step to step; Python runs ahead of the device."""

    def __init__(self, job, context):
        self._job = job
        mesh = open_mesh(job, context)
        self._placement = MeshPlacement(mesh)
        put, self._own_facts = self._placement.put_split, {}
        if "own" in job["workload"]:
            self._network, weights, self._batches, self._own_facts = open_own_training(job, context, put)
        else:
            self._network = JaxNetwork(
                job["workload"], job["precision"], job["options"]["windows"], job["label_smoothing"]
            )
            weights = initial_weights(job["workload"]["layers"], job["seed"])
            self._batches = open_jax_batches(job, context, put)
        self._state = first_state(self._network, weights, job, context, self._placement)
        self._step = JaxStep(self._network, job, mesh, self._placement)
        self._train = self._step.compiled(self._step.train)
        self._rate: Tuple[Any, ...] = ()
        self._evaluate = jax.jit(self._network.evaluate)
        self._workers = context.workers
        self._losses = None
        self._newest = None

    def step(self):
        self._run(self._train, next(self._batches) + self._rate)

    def _run(self, program, batch):
        self._state, self._losses = program(self._state, *batch)
        self._newest = self._losses

    def set_learning_rate(self, rate):
        if not self._rate:
            self._train = self._step.compiled(self._step.train, rated=True)
        self._rate = (self._placement.put_alike(numpy.float32(rate)),)

    def outputs(self, inputs):
        variables, _, statistics, _, _ = jax.tree.map(self._placement.own_part, self._state)
        return channels_first(numpy.asarray(self._evaluate(variables, statistics, channels_last(inputs))))

    def state(self):
        leaves = jax.tree.leaves(self._state)
        return {"state/%d" % place: self._placement.own(leaf).copy() for place, leaf in enumerate(leaves)}

    def set_state(self, arrays):
        leaves, form = jax.tree.flatten(self._state)
        given = [self._placement.put_like(leaf, arrays["state/%d" % place]) for place, leaf in enumerate(leaves)]
        self._state = jax.tree.unflatten(form, given)

    def ablate(self):
        copies = self._batches.copies if self._job["device"] == "cuda" else None
        return JaxAblation(self._step, self._train, self._run, self._take, copies, several=self._workers > 1)

    def _take(self):
        """Return the next batch, which the clock may wait for."""
        batch = next(self._batches)
        self._newest = batch[0]
        return batch

    def batches_ahead(self):
        return self._batches.ahead

    def wait(self):
        jax.block_until_ready((self._state, self._newest))

    def probe_precision(self):
        return self._network.probe()

    def clock(self):
        # Waiting in the loop would keep the device idle while Python issues the next step, which no training does.
        return WaitingClock(lambda: self._newest, jax.block_until_ready, self.wait)

    def device_peak_bytes(self):
        seen = self._placement.device.memory_stats() if self._job["device"] == "cuda" else None
        return (seen or {}).get("peak_bytes_in_use")

    def loss(self):
        return float(self._placement.own(self._losses)[0])

    def loss_later(self):
        losses = self._losses
        return lambda: float(self._placement.own(losses)[0])

    def parameter_count(self):
        return sum(array.size for array in self._state[0].values())

    def output_shape(self):
        if self._own_facts:
            return [self._job["batch_per_worker"]]
        shape = [self._job["batch_per_worker"]] + self._own_input_shape()
        variables, _, statistics, _, keys = self._state
        of_tokens = self._job["workload"]["loss"] in TOKEN_LOSSES
        inputs = jax.ShapeDtypeStruct(shape, numpy.int32 if of_tokens else numpy.float32)
        key = jax.eval_shape(lambda keys: jax.random.wrap_key_data(keys[0]), keys)
        outputs, _ = jax.eval_shape(self._network.outputs, variables, statistics, inputs, key)
        return shape_channels_first(outputs.shape)

    def _own_input_shape(self):
        channels, *sizes = self._job["workload"]["input_shape"]
        return list(sizes) + [channels]

    def get_weights(self):
        return self._network.weights({name: self._placement.own(array) for name, array in self._state[0].items()})

    def facts(self):
        device = self._placement.device
        return {
            **self._own_facts,
            "framework_version": jax.__version__,
            "device": device.device_kind,
            "threads": self._job["threads"],
            "layout": "channels last",
            "collectives": jax.config.jax_cpu_collectives_implementation if device.platform == "cpu" else "nccl",
        }

    def close(self):
        self._batches.close()
        leave_mesh()

    def abort(self):
        """Leave without a word: the others learn of it from JAX's own service, or are ended by the launcher."""
        self._batches.close()
