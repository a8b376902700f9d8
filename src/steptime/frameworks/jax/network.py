"""A workload's layers as a pure function of JAX arrays, for any strategy.

``import_jax`` imports JAX and configures threads and devices, which must precede its first use.
"""

import os
from typing import Any, Callable

from steptime.worker.precision import PROBE, identity_kernel, probe_size
from steptime.worker.samples import TOKEN_LOSSES
from steptime.worker.weights import ORDER_IS_FREE, flat_orders, to_canonical, to_own


def import_jax(threads, device, local_rank, precision="fp32"):
    """Return JAX, set up for one worker: its threads, and the kind of device that it uses.

    Args:
        threads: of XLA on the CPU.
        device: ``cpu`` or ``cuda``.
        local_rank: of the worker on its host; on ``cuda`` it chooses the GPU.
        precision: of the job.
    """
    platforms = "cpu" if device == "cpu" else "cuda,cpu"
    if device == "cpu":
        os.environ["PJRT_NPROC"] = str(threads)  # XLA's pool has a thread for every core of the host otherwise
        if threads == 1:
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = (flags + " --xla_cpu_multi_thread_eigen=false").strip()
    else:
        # Else the first worker takes most of the memory, and others on the same GPU find none.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    jax.config.update("jax_platforms", platforms)  # the process of a check has imported JAX before
    if device == "cuda":
        # fp32 has to mean the same number of bits in every framework.
        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision == "tf32" else "highest")
        jax.config.update("jax_cuda_visible_devices", str(local_rank))
    return jax


def share_compiled():
    """Let processes that are forked from this one load what another one of them compiled from the same program.

    Its files are in the working folder, which is removed with this process. Their names are hashes of all that XLA
    compiles from: the program, its options, and the processor.
    """
    import jax

    jax.config.update("jax_compilation_cache_dir", os.path.abspath("compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def probe_products(kind):
    """Return the products of ``Session.probe_precision`` of values of a type."""
    import jax
    from jax import numpy

    size = probe_size("cpu" if jax.default_backend() == "cpu" else "cuda")
    one = numpy.eye(size.matrix, dtype=kind)
    images = numpy.full((1, size.image, size.image, size.channels), PROBE, kind)
    kernel = numpy.asarray(identity_kernel(size).transpose(2, 3, 1, 0), kind)
    order = ("NHWC", "HWIO", "NHWC")
    convolve = jax.jit(lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=order))
    products = {
        "matrix products": jax.jit(numpy.matmul)(numpy.full_like(one, PROBE), one),
        "convolutions": convolve(images, kernel),
    }
    return {what: (float(product.ravel()[0]), str(product.dtype)) for what, product in products.items()}


class JaxNetwork(object):
    """The functions of a workload; values that change are passed in and out, as JAX wants it.

    ``variables`` are ``{name: array}`` in the network's own layout: convolutions (height, width, in, out), linear
    layers (in, out), since JAX's arrays lie channels last here. ``statistics`` are the running means and variances
    of batch normalisation, of shape (1, channels).
    """

    def __init__(self, workload, precision="fp32", windows="lax", smoothing=0.0):
        """Make the layers.

        Args:
            workload: its JSON.
            precision: ``bf16`` means activations and products in bfloat16.
            windows: who computes convolutions and poolings, ``lax`` or ``hand_written`` (``windows.py``).
            smoothing: the share of each target that is spread over all classes in training.
        """
        import jax.numpy

        from steptime.frameworks.jax.layers import LAYERS, LOSSES

        self._np = jax.numpy
        self._workload = workload
        self._orders = flat_orders(workload["layers"])
        self._type = jax.numpy.bfloat16 if precision == "bf16" else jax.numpy.float32
        self._loss: Callable[..., Any] = LOSSES[workload["loss"]]
        self._smoothing = smoothing
        self._layers = [(layer, LAYERS[layer["kind"]](layer, windows)) for layer in workload["layers"]]

    def probe(self):
        """Return the products of ``Session.probe_precision``, computed as in the forward pass."""
        return probe_products(self._type)

    def variables(self, weights):
        """Return ``{name: numpy array}`` in the own layout, from the workload's."""
        return {name: to_own(kind, weights[name], order) for name, kind, order in self._parameters()}

    def weights(self, variables):
        """Return ``{name: numpy array}`` in the workload's layout, from the own one as numpy arrays."""
        return {name: to_canonical(kind, variables[name], order) for name, kind, order in self._parameters()}

    def statistics(self):
        """Return the running statistics before the first step, as numpy arrays."""
        import numpy

        return {
            "%s.%s" % (layer["name"], name): numpy.full((1, layer["output_shape"][0]), start, numpy.float32)
            for layer, _ in self._layers
            if layer["kind"] == "batch_norm"
            for name, start in (("mean", 0.0), ("variance", 1.0))
        }

    def outputs(self, variables, statistics, inputs, key):
        """Return ``(outputs, new statistics)`` of one batch in training.

        Outputs are float32; samples are channels last where they are images. ``key`` is the random one of this step
        and this worker, or None in evaluation.
        """
        of_tokens = self._np.issubdtype(inputs.dtype, self._np.integer)
        values = {"input": inputs if of_tokens else inputs.astype(self._type)}
        updated = dict(statistics)
        for layer, apply in self._layers:
            own = {each["role"]: variables[each["name"]] for each in layer["parameters"]}
            if layer["kind"] == "unembedding":
                own["weight"] = variables[layer["attributes"]["embedding"] + ".weight"]
            free = layer["kind"] in ORDER_IS_FREE
            sources = [values[name] if free else self._ordered(name, values[name]) for name in layer["inputs"]]
            value = apply(own, sources, updated, key)
            # Numbers of tokens have no type that could go on: what they look up is where the computation's begins.
            values[layer["name"]] = value.astype(self._type) if layer["kind"] == "embedding" else value
        last = self._workload["layers"][-1]["name"]
        return self._ordered(last, values[last]).astype(self._np.float32), updated

    def evaluate(self, variables, statistics, inputs):
        """Return the outputs of one batch by the running statistics, with nothing dropped."""
        return self.outputs(variables, statistics, inputs, None)[0]

    def loss(self, variables, statistics, inputs, targets, key):
        """Return ``(loss, new statistics)`` of one batch: class indices as targets, or the inputs themselves."""
        outputs, updated = self.outputs(variables, statistics, inputs, key)
        if self._workload["loss"] == "softmax_cross_entropy":
            return self._loss(outputs.reshape(len(outputs), -1), targets, self._smoothing), updated
        if self._workload["loss"] in TOKEN_LOSSES:
            return self._loss(outputs, targets, self._smoothing), updated
        return self._loss(self._flat(outputs), self._flat(targets)), updated

    def _parameters(self):
        """Yield the name of each parameter, the kind of its layer, and the order of that layer's flat input."""
        for layer, _ in self._layers:
            for parameter in layer["parameters"]:
                yield parameter["name"], layer["kind"], self._orders.get(layer["inputs"][0])

    def _flat(self, values):
        """Bring images to the workload's order of flat values, so that images and flat values can be compared."""
        if values.ndim == 4:  # noqa: PLR2004 - batch, height, width, channels
            values = values.transpose(0, 3, 1, 2)
        return values.reshape(len(values), -1)

    def _ordered(self, name, values):
        """Undo the own order of flat values before a layer that cannot live with it."""
        if name not in self._orders:
            return values
        channels, height, width = self._orders[name]
        return values.reshape(-1, height, width, channels).transpose(0, 3, 1, 2).reshape(len(values), -1)
