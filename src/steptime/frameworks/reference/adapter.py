"""Training in plain numpy: the oracle of the equivalence check, and the double of a real framework in tests."""

from typing import Any

import numpy

from steptime.frameworks.reference.collectives import connect
from steptime.frameworks.reference.loader import open_reference_batches
from steptime.frameworks.reference.network import ReferenceNetwork
from steptime.frameworks.reference.optimizers import ReferenceOptimizer
from steptime.worker.framework import Framework, require_fp32
from steptime.worker.process_context import micro_batches
from steptime.worker.session import AblatedStep, Session
from steptime.worker.usage import compute_threads
from steptime.worker.weights import NUDGES, initial_weights, parsed_nudges

_BF16 = 16


def open_session(job, context):
    """Return a session of the strategy ``single`` or ``allreduce``."""
    require_fp32(job, "the reference")
    return ReferenceSession(job, context)


class ReferenceSession(Session):
    """One worker, or with the option ``shards`` the work of several, one after the other.

    Each shard is what the worker of that rank would compute: its own batches, its own batch statistics. Gradients
    are summed in the order of the ranks and divided by their number, then the weights are updated once. Sums across
    processes are made in the same order, so that all ways give the same weights.
    """

    def __init__(self, job, context):
        workload = job["workload"]
        self._batch = job["batch_per_worker"]
        self._accumulation = micro_batches(job)
        self._shards = int(job["options"].get("shards", 1))
        bits = job["options"].get("bits", 32)
        self._network = ReferenceNetwork(
            workload, "float%d" % max(bits, 32), rounded=bits == _BF16, smoothing=job["label_smoothing"]
        )
        self._network.set_weights(initial_weights(workload["layers"], job["seed"]))
        self._optimizer = self._new_optimizer(job)
        workers = context.workers * self._shards
        ranks = range(context.rank * self._shards, (context.rank + 1) * self._shards)
        self._feeds = [open_reference_batches(job, rank, workers, self._network.batch) for rank in ranks]
        self._streams = [numpy.random.RandomState([job["seed"], 104729, rank]) for rank in ranks]
        self._average = connect(context)
        self._workers = context.workers
        self._loss: Any = None
        self._updates = job["options"].get("updates", "together")
        self._first_values = self._network.values.copy() if self._updates == "frozen" else None
        self._pushes = 0
        self._nudges = parsed_nudges(job["options"].get("nudges", "none"))
        self._steps = 0
        self._blocks: Any = None
        if self._updates == "blocks":
            optimizers = [self._new_optimizer(job) for _ in ranks]
            self._blocks = Blocks(job["options"], self._network.values, optimizers)

    def _new_optimizer(self, job):
        return ReferenceOptimizer(job, self._network.values, self._network.arrays)

    def step(self):
        if self._updates == "together":
            self._step_together()
        elif self._updates == "blocks":
            self._step_in_block()
        else:
            self._push()

    def _step_in_block(self):
        """Take one step of every shard by itself, and let them agree where that ends a block."""
        values, blocks = self._network.values, self._blocks
        losses = []
        for shard, (feed, stream) in enumerate(zip(self._feeds, self._streams)):
            values[:] = blocks.values[shard]
            inputs, targets = next(feed)
            self._network.set_mask_stream(stream)
            losses.append(self._backpropagate(inputs, targets))
            blocks.optimizers[shard].update(self._network.slopes)
            blocks.values[shard] = values
        self._loss = losses[0]
        blocks.count_step()
        values[:] = blocks.values[0]

    def _backpropagate(self, inputs, targets):
        """Return the loss of a batch and leave its gradients, which are the means of those of its parts."""
        network = self._network
        if self._accumulation == 1:
            return network.backpropagate(inputs, targets)
        loss, total = 0.0, numpy.zeros_like(network.slopes)
        for part in network.parts(inputs, targets, self._accumulation):
            loss += network.backpropagate(*part) / self._accumulation
            total += network.slopes
        numpy.divide(total, self._accumulation, out=network.slopes)
        return loss

    def _push(self):
        """Update with the gradient of the next shard alone, as an asynchronous server does."""
        shard = self._pushes % self._shards
        self._pushes += 1
        values = self._network.values
        now = values.copy()
        if self._first_values is not None:
            values[:] = self._first_values
        inputs, targets = next(self._feeds[shard])
        self._network.set_mask_stream(self._streams[shard])
        self._loss = self._backpropagate(inputs, targets)
        values[:] = now
        self._optimizer.update(self._network.slopes)

    def _nudge_weights(self):
        """Put every weight off by some millionths of itself if the job asks for it; return the weights before.

        Of two seeds in a row the second one goes the other way: what lies at zero changes its sign in one of them.
        """
        values, seeds = self._network.values, self._nudges.get(self._steps, ())
        before = values.copy() if seeds else None
        self._steps += 1
        for seed in seeds:
            pair, way = divmod(seed, 2)
            coins = numpy.random.RandomState(pair).bytes(-(-values.size // 8))
            ways = numpy.unpackbits(numpy.frombuffer(coins, dtype=numpy.uint8))[: values.size] == way
            share = NUDGES[pair % len(NUDGES)]
            values *= numpy.where(ways, 1.0 + share, 1.0 - share)
        return before

    def _step_together(self):
        before = self._nudge_weights()
        slopes = self._network.slopes
        losses, total = [], None
        for feed, stream in zip(self._feeds, self._streams):
            inputs, targets = next(feed)
            self._network.set_mask_stream(stream)
            losses.append(self._backpropagate(inputs, targets))
            if self._shards > 1:
                total = slopes.copy() if total is None else numpy.add(total, slopes, out=total)
        self._loss = losses[0]
        if before is not None:
            self._network.values[:] = before
        if total is not None:
            numpy.divide(total, self._shards, out=slopes)
        self._average(slopes)
        self._optimizer.update(slopes)

    def ablate(self):
        """Return the ablated step of one shard, which is what a worker in training has."""
        average = self._average if self._workers > 1 else None
        return ReferenceAblation(self._network, self._feeds[0], self._streams[0], average, self._optimizer.update)

    def set_learning_rate(self, rate):
        for optimizer in [self._optimizer] + (self._blocks.optimizers if self._blocks else []):
            optimizer.rate = rate

    def outputs(self, inputs):
        return self._network.evaluate(inputs)

    def state(self):
        """Return weights, running statistics, the optimizer's state and that of the masks' streams; all in their bits.

        None with ``updates`` other than ``together``, which only checks use.
        """
        if self._updates != "together":
            return None
        state = {"values": self._network.values.copy()}
        state.update({"layer/" + name: array.copy() for name, array in self._network.state().items()})
        state.update({"optimizer/" + name: array for name, array in self._optimizer.state().items()})
        for shard, stream in enumerate(self._streams):
            _, keys, position, _, _ = stream.get_state()
            state["stream/%d" % shard] = numpy.append(keys, numpy.uint32(position))
        return state

    def set_state(self, arrays):
        self._network.values[:] = arrays["values"]
        for name, array in self._network.state().items():
            array[:] = arrays["layer/" + name]
        self._optimizer.set_state(
            {name[len("optimizer/") :]: array for name, array in arrays.items() if name.startswith("optimizer/")}
        )
        for shard, stream in enumerate(self._streams):
            kept = arrays["stream/%d" % shard]
            state: Any = ("MT19937", kept[:-1], int(kept[-1]))
            stream.set_state(state)

    def wait(self):
        """Return at once: numpy has finished when a step returns."""

    def loss(self):
        return self._loss

    def parameter_count(self):
        return sum(array.size for array in self._network.weights.values())

    def output_shape(self):
        return [self._batch] + list(self._network.output_shape)

    def get_weights(self):
        """Return float64 arrays where the job wants 64 bits."""
        return {name: array.copy() for name, array in self._network.weights.items()}

    def facts(self):
        return {
            "framework_version": numpy.__version__,
            "device": "cpu",
            "threads": compute_threads(),
            "shards": self._shards,
            "bits": 8 * self._network.dtype.itemsize,
        }

    def close(self):
        self._average.close()


class Blocks(object):
    """The weights of shards that train alone for a block of steps, and then all take the filtered mean.

    K. Chen, Q. Huo, blockwise model-update filtering, ICASSP 2016, with the gain (1 - momentum) x learning rate of the
    sum over the shards, and CNTK's form of Nesterov's momentum.
    """

    def __init__(self, options, values, optimizers):
        """Begin with the weights ``values`` in all shards, and the ``optimizers`` of each."""
        self.values = numpy.tile(values, (len(optimizers), 1))
        self.optimizers = optimizers
        self._options = options
        self._before = values.copy()
        self._smoothed = numpy.zeros_like(values)
        self._steps = 0

    def count_step(self):
        """Count a step of all shards; at the end of a block, replace their weights."""
        options = self._options
        self._steps += 1
        if self._steps % options["block_steps"]:
            return
        momentum = options["block_momentum"]
        change = (self._before - self.values).sum(axis=0)
        self._smoothed = momentum * self._smoothed + (1.0 - momentum) * options["block_learning_rate"] * change
        self._before = self._before - self._smoothed
        if options["nesterov"]:
            self._before = self._before - momentum * self._smoothed
        self.values[:] = self._before
        if options["reset_momentum"]:
            for optimizer in self.optimizers:
                optimizer.forget()


class ReferenceAblation(AblatedStep):
    """The same calls as in a step, with stages left out."""

    marks = ("input", "backward", "exchange", "update")

    def __init__(self, network, feed, stream, average, update):
        """Take a session's parts.

        Args:
            network: the ``ReferenceNetwork``.
            feed: iterator of batches.
            stream: random numbers of the dropout masks.
            average: averages the gradients over the workers, in place; None for one worker.
            update: updates the weights with gradients.
        """
        self._network = network
        self._feed = feed
        self._stream = stream
        self._average = average
        self._update = update

    def stages(self):
        network, slopes = self._network, self._network.slopes
        inputs, targets = next(self._feed)
        network.set_mask_stream(self._stream)

        def forward():
            network.loss(inputs, targets)

        def backward():
            network.backpropagate(inputs, targets)

        def local():
            backward()
            self._update(slopes)

        def exchange():
            backward()
            self._average(slopes)
            self._update(slopes)

        stages = {"forward": forward, "backward": backward, "local": local, "input": lambda: next(self._feed)}
        if self._average is not None:
            stages.update(exchange=exchange, communication=lambda: self._average(slopes))
        return stages

    def marked_step(self, mark):
        inputs, targets = next(self._feed)
        mark("input")
        self._network.set_mask_stream(self._stream)
        self._network.backpropagate(inputs, targets)
        mark("backward")
        if self._average is not None:
            self._average(self._network.slopes)
        mark("exchange")
        self._update(self._network.slopes)
        mark("update")


def open_back_end(_, context):
    """Return the back end that the message benchmark times."""
    from steptime.frameworks.reference.collectives import StarBackEnd

    return StarBackEnd(context)


FRAMEWORK = Framework(open_session, open_back_end=open_back_end)
