"""A user's own module in JAX, and the one process that its equivalence check compares workers with.

``build()`` returns what has ``init(key, inputs)``, which returns parameters as a tree of arrays, and
``apply(parameters, inputs)``, as modules of ``flax.linen`` have them. Nothing is kept between steps but parameters.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy

from steptime.frameworks.jax.mesh import open_mesh
from steptime.frameworks.jax.network import probe_products
from steptime.frameworks.jax.optimizers import clipped, optimizer_of, slots_of
from steptime.worker.batches import Batches
from steptime.worker.own_module import OwnWorkload, changed, flop_per_sample, open_own_batches
from steptime.worker.own_reference import BF16, DOUBLE, SINGLE, OwnReference

_FLAX = "params"
"""The collection of what flax trains."""
_NO_KEY = "InvalidRngError"
"""What flax raises where a layer as dropout has no key."""
_PAIR = 2


class AppliedModule(object):
    """What a loss calls: the module with the parameters that are being trained.

    ``module``
        What ``build()`` returned.
    ``parameters``
        As its ``init`` returns them.
    """

    def __init__(self, module, parameters):
        self.module = module
        self.parameters = parameters

    def __call__(self, *inputs, **named):
        return self.module.apply(self.parameters, *inputs, **named)


class JaxOwnWorkload(OwnWorkload):
    """The user's module in place of a workload."""

    needed = "an object with init(key, inputs) and apply(parameters, inputs), as a module of flax.linen"
    arrays = "arrays; make some of it: numpy.asarray(values)"
    to_single = '.astype("float32")'

    def __init__(self, job):
        super(JaxOwnWorkload, self).__init__(job)
        self._seed = job["seed"]
        self._form = None
        self._first = {}

    def is_module(self, value):
        return callable(getattr(value, "init", None)) and callable(getattr(value, "apply", None))

    def prepare(self, batch):
        """Initialise from zeros of the shape of a batch's inputs, which are the same on every worker."""
        batch = changed(self, batch, numpy.asarray)
        inputs = batch["inputs"] if isinstance(batch, Mapping) and "inputs" in batch else batch
        inputs = inputs[0] if isinstance(inputs, (tuple, list)) and len(inputs) == _PAIR else inputs
        zeros = jax.tree.map(lambda each: jax.numpy.zeros(each.shape, each.dtype), inputs)
        with self.of_user("init of %s()" % self.own["build"]):
            parameters = self.module.init(jax.random.key(self._seed), zeros)
        self._require_no_state(parameters)
        leaves, self._form = jax.tree_util.tree_flatten_with_path(parameters)
        found = {_name(path): leaf for path, leaf in leaves}
        self.require_trainable({name: getattr(leaf, "dtype", type(leaf)) for name, leaf in found.items()})
        self._first = {name: numpy.array(leaf) for name, leaf in found.items()}

    def _require_no_state(self, parameters):
        if not (isinstance(parameters, Mapping) and _FLAX in parameters and len(parameters) > 1):
            return
        others = ", ".join(sorted(str(name) for name in parameters if name != _FLAX))
        raise ValueError(
            "%s() returned a module that keeps %s between steps, and JAX trains its parameters alone; put layers "
            "without it in place of those that have it, as LayerNorm or GroupNorm of BatchNorm"
            % (self.own["build"], others)
        )

    def weights(self):
        return self._first

    def loss_of(self, variables, batch):
        """Return the loss of a batch by ``{name: array}``, as one number."""
        parameters = jax.tree_util.tree_unflatten(self._form, list(variables.values()))
        with self.of_user("the loss of %s()" % self.own["build"]):
            try:
                loss = self.loss(AppliedModule(self.module, parameters), batch)
            except Exception as error:
                if type(error).__name__ != _NO_KEY:
                    raise
                raise ValueError(
                    "the module draws random numbers in its forward pass (%s), and steps in JAX have no key for them; "
                    "build it with deterministic=True" % str(error).split(" (")[0]
                ) from error
        self.require_number(loss)
        return loss.reshape(())

    def default_loss(self, module, batch):
        """Return the cross entropy of ``(inputs, targets)``; the last axis of outputs is that of the classes."""
        inputs, targets = self.pair_of(batch)
        logarithms = jax.nn.log_softmax(module(inputs))
        if targets.shape == logarithms.shape:
            return -(targets * logarithms).sum(-1).mean()
        return -jax.numpy.take_along_axis(logarithms, targets[..., None], -1).mean()

    def flops(self, batch):
        """Count in the operations of JAX, each at its shapes; loops whose turns are not known cannot be counted."""
        batch = changed(self, batch, numpy.asarray)
        traced = jax.make_jaxpr(jax.value_and_grad(self.loss_of))(self._first, batch)
        try:
            return _flops(traced.jaxpr) or None
        except NotImplementedError:
            return None


def _name(path):
    """Return the place of an array in the tree of parameters, without flax's name of their collection."""
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    return name[len(_FLAX) + 1 :] if name.startswith(_FLAX + ".") else name or "parameters"


def _flops(jaxpr):
    """Return the FLOPs of the products in a jaxpr; raises NotImplementedError for a loop of an unknown length."""
    total = 0
    for equation in jaxpr.eqns:
        name, settings = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = settings["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * equation.outvars[0].aval.size * int(numpy.prod([shape[axis] for axis in contracted]))
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval
            outputs = kernel.shape[settings["dimension_numbers"].rhs_spec[0]]
            total += 2 * equation.outvars[0].aval.size * (kernel.size // outputs)
        inside = sum(_flops(each) for each in _inner(settings))
        if inside and name in ("while", "cond"):
            raise NotImplementedError(name)
        total += inside * settings.get("length", 1) if name == "scan" else inside
    return total


def _inner(settings):
    """Yield the jaxprs that an operation runs."""
    for value in settings.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            jaxpr = getattr(each, "jaxpr", each)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr


class JaxOwnNetwork(object):
    """The module as ``JaxStep`` takes a network; a batch is its inputs, and no targets are beside it."""

    def __init__(self, built):
        self._built = built

    def loss(self, variables, statistics, batch, _targets, _key):
        """Return ``(loss, statistics)`` of one batch."""
        return self._built.loss_of(variables, batch).astype(jax.numpy.float32), statistics

    def evaluate(self, *_):
        """Raise NotImplementedError: a module comes without a validation set."""
        raise NotImplementedError

    def variables(self, weights):
        """Return ``weights``, which have no other layout."""
        return weights

    def weights(self, variables):
        """Return ``variables``, likewise."""
        return variables

    def statistics(self):
        """Return what is kept between steps: nothing."""
        return {}

    def probe(self):
        """Return the products of ``Session.probe_precision``."""
        return probe_products(jax.numpy.float32)


def open_own_training(job, context, put):
    """Return the network, the first weights, the ``Batches`` and the facts of a user's module.

    Args:
        job: the job.
        context: of this worker.
        put: makes this worker's part of an array over all workers.
    """
    built = JaxOwnWorkload(job)
    first, drawn = open_own_batches(job, context, built)
    facts = dict(built.facts(), flop_per_sample=flop_per_sample(job, context, built, first))

    def place(array):
        if not numpy.shape(array):
            raise ValueError(
                "a batch of %s holds %r beside its arrays, and JAX takes arrays of samples alone; leave it out"
                % (built.own["data"], array)
            )
        return put(numpy.asarray(array))

    batches = ((jax.tree.map(place, changed(built, batch, numpy.asarray)), ()) for batch in drawn)
    return JaxOwnNetwork(built), built.weights(), Batches(batches), {"own": facts}


class JaxOwnReference(OwnReference):
    """The module in plain steps of one process."""

    def __init__(self, job, context):
        self._settings = job["optimizer"]
        self._rate = self._settings["learning_rate"]
        open_mesh(job, context)
        self._type: Any = numpy.float32
        self._wide: Any = numpy.float32
        self._own = JaxOwnWorkload(job)
        super(JaxOwnReference, self).__init__(job, context, self._own)

    def begin(self, bits, batch):
        if bits == DOUBLE:
            bits = DOUBLE if self._takes_double(batch) else SINGLE
        self._wide = numpy.float64 if bits == DOUBLE else numpy.float32
        jax.config.update("jax_enable_x64", bits == DOUBLE)
        self._type = jax.numpy.bfloat16 if bits == BF16 else self._wide
        self.put(self._own.weights())
        self._kept = {slot: jax.tree.map(jax.numpy.zeros_like, self._values) for slot in slots_of(self._settings)}
        self._gradients, self._number = None, 0
        self._differentiate = jax.jit(jax.value_and_grad(self._own.loss_of))
        self._update = jax.jit(self._updated)
        return bits

    def _takes_double(self, batch):
        """Say whether all that the module computes is in double precision where its parameters and batches are."""
        jax.config.update("jax_enable_x64", True)
        self._type = numpy.float64
        weights = {name: self._cast(each) for name, each in self._own.weights().items()}
        try:
            return "f32[" not in str(jax.make_jaxpr(self._own.loss_of)(weights, self._placed(batch)))
        except TypeError:
            return False

    def _cast(self, values):
        return values.astype(self._type) if jax.numpy.issubdtype(values.dtype, jax.numpy.floating) else values

    def _placed(self, batch):
        return changed(self._own, batch, lambda each: self._cast(numpy.asarray(each)))

    def values(self):
        return {name: numpy.array(each) for name, each in self._values.items()}

    def put(self, values):
        self._values = {name: jax.numpy.asarray(each, self._wide) for name, each in values.items()}

    def backward(self, batch, share):
        values = {name: self._cast(each) for name, each in self._values.items()}
        loss, gradients = self._differentiate(values, self._placed(batch))
        own = {name: share * each.astype(self._wide) for name, each in gradients.items()}
        before = self._gradients
        self._gradients = own if before is None else {name: each + own[name] for name, each in before.items()}
        return loss

    def update(self):
        self._number += 1
        self._values, self._kept = self._update(self._values, self._kept, self._gradients, self._rate, self._number)
        self._gradients = None

    def _updated(self, values, kept, gradients, rate, number):
        gradients = clipped(self._settings, gradients)
        return optimizer_of(self._settings)(self._settings, rate, gradients, (values, kept, number))

    def set_learning_rate(self, rate):
        self._rate = rate

    def library_facts(self):
        return {"framework_version": jax.__version__, "device": jax.devices()[0].device_kind}
