"""One training step of a TensorFlow workload (loss, gradients, update), and the strategy of one worker.

The ablated step in TensorFlow 2: compiled functions of parts of the step, and a graph that notes the time.
"""

import time
from typing import Tuple

import tensorflow as tf

from steptime.libraries.tensorflow.network import TensorFlowNetwork
from steptime.libraries.tensorflow.optimizers import open_optimizer
from steptime.libraries.tensorflow.startup import collect_garbage
from steptime.worker.process_context import micro_batches
from steptime.worker.session import AblatedStep
from steptime.worker.weights import initial_weights


class TensorFlowTraining(object):
    """A workload with its optimizer; ``step`` is what a strategy compiles and runs, the other methods are parts of it.

    What the optimizer keeps is made in the constructor, under whatever strategy's scope is then in force.
    """

    use_locking = False
    """Whether an update keeps others from the same variable while it is made."""

    def __init__(  # noqa: PLR0913 - one per fact
        self, network, optimizer, combine=None, share=1.0, *, accumulation=1, xla=False
    ):
        """Make the optimizer.

        Args:
            network: a ``TensorFlowNetwork``.
            optimizer: of the job.
            combine: a callable from a list of this worker's gradients to those of all workers; None keeps them.
            share: a factor on the loss that is differentiated; 1 / workers where ``combine`` sums, since dividing one
                number is cheaper than dividing all gradients.
            accumulation: equal parts of a batch whose gradients a step adds up, one after the other.
            xla: whether XLA compiles loss and gradients, to which the exchange and the update do not belong.
        """
        self._network = network
        differentiate = self._differentiated
        self._gradients = tf.function(differentiate, jit_compile=True, autograph=False) if xla else differentiate
        self._variables = network.variables
        self._optimizer = open_optimizer(optimizer, self._variables, self._slot, use_locking=self.use_locking)
        self._rate = optimizer["learning_rate"]
        self._accumulation = accumulation
        self._longest = optimizer.get("clip_norm")
        self._combine = combine
        self._share = share

    def _slot(self, variable, name):
        """Return a variable of zeros for the optimizer, which must lie where ``variable`` does."""
        return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False, name=name)

    @property
    def kept(self):
        """``{name: variable}`` of what the optimizer depends on, but for the weights."""
        return self._optimizer.kept

    def set_rate(self, rate):
        """Update with the learning rate ``rate`` from now on; return whether ``step`` must be compiled anew.

        A rate that never changes is a constant of the graph. The first other one makes a variable, which steps that
        are compiled later read.
        """
        if isinstance(self._rate, tf.Variable):
            self._rate.assign(rate)
            return False
        self._rate = tf.Variable(rate, dtype=tf.float32, trainable=False, name="learning_rate")
        return True

    def step(self, inputs, targets):
        """Train on one batch and return its loss before the update."""
        loss, _ = self._train(inputs, targets)
        return loss

    def forward(self, inputs, targets):
        """Return the loss of one batch, in training."""
        return self._network.loss(inputs, targets)

    def backward(self, inputs, targets):
        """Return the loss of one batch, and this worker's share of all gradients."""
        return self._gradients(inputs, targets)

    def _differentiated(self, inputs, targets):
        with tf.GradientTape() as tape:
            loss = self._network.loss(inputs, targets)
            shared = loss if self._share == 1.0 else loss * self._share
        unused = tf.UnconnectedGradients.ZERO  # of a user's module
        return loss, tape.gradient(shared, self._variables, unconnected_gradients=unused)

    def local(self, inputs, targets):
        """Train on one batch without the other workers and return its loss before the update."""
        loss, gradients = self.backward(inputs, targets)
        self.update(gradients)
        return loss

    def stamped(self, inputs, targets, stamp):
        """Train on one batch, and return its loss and moments that ``stamp`` (a ``Stamps``) made of it.

        The moments: when the batch was there, the loss, each gradient, and each gradient of all workers.
        """
        moment_of_batch, inputs = stamp(inputs)
        with tf.GradientTape() as tape:
            loss = self._network.loss(inputs, targets)
        moment_of_loss, noted = stamp(loss)
        with tf.control_dependencies([noted]):  # of which the gradients do not depend otherwise
            seed = tf.identity(self._share)
        ready, gradients = zip(*map(stamp, tape.gradient(loss, self._variables, seed)))
        done, combined = zip(*map(stamp, self.combine(list(gradients))))
        self.update(combined)
        return loss, tf.stack((moment_of_batch, moment_of_loss) + ready + done)

    def combine(self, gradients):
        """Return the gradients of all workers from this worker's, or these for a single worker."""
        return gradients if self._combine is None else self._combine(gradients)

    def _train(self, inputs, targets):
        """Train on one batch; return its loss before the update, and the operations that update."""
        in_parts = self._accumulation > 1
        loss, gradients = self._gathered(inputs, targets) if in_parts else self.backward(inputs, targets)
        return loss, self.update(self.combine(gradients))

    def _gathered(self, inputs, targets):
        """Return what ``backward`` does, the mean over equal parts of the batch in a loop of the graph."""
        count = self._accumulation
        parts = [
            tf.reshape(each, [count, each.shape[0] // count] + each.shape[1:].as_list()) for each in (inputs, targets)
        ]

        def add(place, loss, gradients):
            more, own = self.backward(*[each[place] for each in parts])
            return place + 1, loss + more / count, [total + each / count for total, each in zip(gradients, own)]

        start = (0, 0.0, [tf.zeros(each.shape) for each in self._variables])
        _, loss, gradients = tf.while_loop(
            lambda place, *_: place < count, add, start, parallel_iterations=1, maximum_iterations=count
        )
        return loss, gradients

    def update(self, gradients, rate=None):
        """Change the variables, and return the operations that do it.

        Args:
            gradients: of all workers.
            rate: the learning rate; None for the one that is in force.
        """
        if rate is None:
            constant = not isinstance(self._rate, tf.Variable)
            rate = self._rate if constant else self._rate.read_value()
        if self._longest is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._longest)
        return self._optimizer.update(gradients, rate)


def build_network(job, context=None):
    """Return the network of a job with its first weights: a ``TensorFlowNetwork``, or of a user's model."""
    if "own" in job["workload"]:
        from steptime.libraries.tensorflow.own_module import open_own_network

        return open_own_network(job, context)
    weights = initial_weights(job["workload"]["layers"], job["seed"])
    return TensorFlowNetwork(job["workload"], weights, job["precision"], job["label_smoothing"])


class SingleTraining(object):
    """The strategy of a ``TensorFlowSession`` whose worker exchanges no gradients.

    XLA compiles its whole step if the job wants that.

    ``network``, ``training``
        What is trained, and how.
    ``marks``
        The phases whose ends the graph can tell on a CPU.
    ``facts``
        JSON-ready facts of the strategy.
    """

    marks: Tuple[str, ...] = ("input", "forward", "backward", "update")

    def __init__(self, job, context):
        self.network = build_network(job, context)
        accumulation = micro_batches(job)
        self.training = TensorFlowTraining(self.network, job["optimizer"], accumulation=accumulation)
        self._xla = job["options"]["xla"]
        self.facts = {"xla": self._xla}
        if self._xla:
            self.marks = ()  # XLA cannot tell the time

    def wrap(self, function):
        """Return ``function``, a method of ``training``, as it is to be compiled."""
        return tf.function(function, jit_compile=True, autograph=False) if self._xla else function

    def leave(self):
        """Leave the other workers, of whom there are none."""


class TensorFlowAblation(AblatedStep):
    """Each stage is a compiled function of its own; a marked step has an operation behind each tensor of interest.

    Results are what keeps a function from being pruned: all gradients leave the function that applies them to
    nothing.
    """

    def __init__(self, strategy, batches, marks, *, several, cuda):
        """Take a session's parts.

        Args:
            strategy: as in ``TensorFlowSession``.
            batches: of this worker.
            marks: the phases whose ends the graph can note.
            several: whether there are other workers.
            cuda: whether on a GPU, to which batches are copied.
        """
        self.marks = marks
        self._strategy = strategy
        self._batches = batches
        self._several = several
        self._cuda = cuda
        self._marked = None
        self._pieces = [(variable.name, 4 * variable.shape.num_elements()) for variable in strategy.network.variables]
        self._seen = None

    def stages(self):
        """Build the graph of every stage, on one batch that is held."""
        training = self._strategy.training
        take = self._batches.taker()
        held = take()

        def on(function, *arguments):
            return compile_on(self._strategy.wrap(function), *arguments)

        stages = {name: on(getattr(training, name), *held) for name in ("forward", "backward", "local")}
        stages["input"] = take
        if self._cuda:
            stages["h2d"] = self._batches.copies()(self._strategy.wrap(training.step))
        if self._several:
            stages["exchange"] = on(training.step, *held)
            _, gradients = stages["backward"]()
            # As results of operations they lie on a device, which collectives ask for; arguments lie nowhere.
            combine = lambda pieces: training.combine([tf.identity(piece) for piece in pieces])  # noqa: E731 - wrapped
            stages["communication"] = on(combine, gradients)
        collect_garbage()
        return stages

    def marked_step(self, mark):
        if self._marked is None:
            stamps, training = TimeStamps(), self._strategy.training
            self._marked = self._batches.feed(
                self._strategy.wrap(lambda inputs, targets: training.stamped(inputs, targets, stamps))
            )
        begin = time.monotonic()
        _, moments = self._marked()
        end = time.monotonic()
        moments = (moments.numpy() + (end - time.time())).tolist()
        count = len(self._pieces)
        ready, done = moments[2 : 2 + count], moments[2 + count :]
        phases = {"input": moments[0], "forward": moments[1], "backward": max(ready), "exchange": max(done)}
        latest = begin  # TensorFlow reads the time of day, which may be set meanwhile
        for name in self.marks:
            latest = max(latest, min(phases.get(name, end), end))
            mark(name, latest)
        if self._seen is None:
            collect_garbage()  # the first step built the graph
            self._seen = []
        if "exchange" in self.marks:
            # A moment may be noted a little late, when many operations are ready at once.
            self._seen += [[name, size, min(at), at[1]] for (name, size), at in zip(self._pieces, zip(ready, done))]

    def transfers(self):
        seen, self._seen = sorted(self._seen or (), key=lambda piece: piece[2]), []
        return seen if "exchange" in self.marks else None


def compile_on(function, *arguments):
    """Return what runs ``function``, compiled, on ``arguments``; its graph is built here, and nothing is run."""
    compiled = tf.function(function, autograph=False)
    compiled.get_concrete_function(*arguments)
    return lambda: compiled(*arguments)


class TimeStamps(object):
    """Called with a tensor, returns when it was there, and the tensor.

    The moment is in seconds of the host's time of day. What uses the returned tensor waits until the moment is noted;
    otherwise it would be noted when all else that is ready has been computed.

    TensorFlow takes the operation that reads the clock for one with a state, and would run all such operations one
    after the other, in the order in which they were written. In a function of its own the operation has no state, and
    waits for its tensor only.
    """

    def __init__(self):
        self._now = {}

    def __call__(self, tensor):
        if tensor.dtype not in self._now:  # words are whole numbers, pictures are not
            anything = tf.TensorSpec(None, tensor.dtype)
            with tf.init_scope():
                self._now[tensor.dtype] = tf.function(_now, autograph=False).get_concrete_function(anything)
        moment = tf.raw_ops.PartitionedCall(args=[tensor], Tout=[tf.float64], f=self._now[tensor.dtype])[0]
        with tf.control_dependencies([moment]):
            return moment, tf.identity(tensor)


def _now(after):
    with tf.control_dependencies([after]):
        return tf.timestamp()
