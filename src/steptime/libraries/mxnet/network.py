"""A workload as an MXNet symbol bound to memory: the static graph that MXNet 1 runs fastest.

MXNet reads its environment (``OMP_NUM_THREADS`` among others) once, when this module imports it; ``startup.py`` sets
the variables before.
"""

from typing import Any, Dict, Sequence, Tuple

import mxnet

from steptime.libraries.mxnet.layers import KINDS, LOSSES, TARGETS, TURNS
from steptime.worker.samples import TOKEN_LOSSES
from steptime.worker.weights import rotary_turns

_INPUT = "input"


class BoundWorkload(object):
    """A workload's symbol with all its arrays: inputs, weights, gradients, and what lies between.

    ``weights`` and ``gradients`` are ``{name: NDArray}`` in the order of the layers, under the names and in the
    layout of the workload's JSON, which MXNet shares. Weights are zero until ``set_weights``.

    ``gradients`` are those of the *sum* of the losses over the batch: MXNet's optimizers rescale by the batch.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - one per fact
        self,
        workload: Dict[str, Any],
        batch: int,
        mx_device: Any,
        label_smoothing: float = 0.0,
        loss_scale: float = 1.0,
        accumulation: int = 1,
    ) -> None:
        """Plan the memory of one batch, or of one of its equal parts, once for all steps.

        Args:
            workload: its JSON.
            batch: samples per step.
            mx_device: MXNet's device.
            label_smoothing: share of the target that is spread evenly over all classes.
            loss_scale: by what gradients are multiplied.
            accumulation: equal parts of a batch whose gradients are added up.

        Raises ValueError for a layer or a loss that this builder does not know, and ``mxnet.MXNetError`` where
        MXNet finds other shapes than the workload's.
        """
        self._part, self._parts, self._losses = batch // accumulation, accumulation, None
        shapes = {_INPUT: (self._part,) + tuple(workload["input_shape"])}
        if workload["loss"] != "mean_squared_error":  # there the target is the input itself
            tokens = tuple(workload["input_shape"]) if workload["loss"] in TOKEN_LOSSES else ()
            shapes[TARGETS] = (self._part,) + tokens
        constants = {
            "%s.%s" % (layer["name"], name): table[None, :, None]
            for layer in workload["layers"]
            if layer["kind"] == "attention"
            for name, table in zip(TURNS, rotary_turns(layer) or ())
        }
        shapes.update((name, table.shape) for name, table in constants.items())
        losses, outputs = _symbols(workload, label_smoothing)
        symbol = mxnet.sym.Group([mxnet.sym.MakeLoss(losses, grad_scale=loss_scale), mxnet.sym.BlockGrad(outputs)])
        names = [parameter["name"] for layer in workload["layers"] for parameter in layer["parameters"]]
        how = "write" if accumulation == 1 else "add"
        self._executor = symbol.simple_bind(mx_device, grad_req=dict.fromkeys(names, how), **shapes)
        self._mx_device, self._outputs, self._input_shape = mx_device, outputs, (batch,) + shapes[_INPUT][1:]
        self._given = [self._executor.arg_dict[name] for name in shapes if name not in constants]
        self._constants = {name: self._executor.arg_dict[name] for name in constants}
        for name, array in self._constants.items():
            array[:] = constants[name]
        self.weights = {name: self._executor.arg_dict[name] for name in names}
        self.gradients = {name: self._executor.grad_dict[name] for name in names}
        for name, array in self._executor.aux_dict.items():
            array[:] = 1.0 if name.endswith("_moving_var") else 0.0

    @property
    def running(self) -> Dict[str, Any]:
        """The running statistics of batch normalisation, ``{name: NDArray}``."""
        return self._executor.aux_dict

    @property
    def losses(self) -> Any:
        """One loss per sample of the last batch; their mean is the loss of the protocol."""
        return self._executor.outputs[0] if self._parts == 1 else self._losses

    @property
    def outputs(self) -> Any:
        """The output of the last layer, of a part of the batch where it has several."""
        return self._executor.outputs[1]

    def propagate(self, inputs: Any, targets: Any) -> None:
        """Start the forward pass of one batch of NDArrays, as in training; MXNet's engine finishes it later."""
        for own, given in zip(self._given, (inputs, targets)):
            given.copyto(own)
        self._executor.forward(is_train=True)

    def backpropagate(self, inputs: Any, targets: Any) -> None:
        """Start forward and backward of one batch of NDArrays; MXNet's engine finishes them later."""
        if self._parts > 1:
            self._gather(inputs, targets)
            return
        self.propagate(inputs, targets)
        self._executor.backward()

    def _gather(self, inputs: Any, targets: Any) -> None:
        """Add up the gradients of the parts of a batch, and keep their losses."""
        for gradient in self.gradients.values():
            gradient[:] = 0
        losses = []
        for start in range(0, self._part * self._parts, self._part):
            part = slice(start, start + self._part)
            self.propagate(inputs[part], targets[part])
            self._executor.backward()
            losses.append(self._executor.outputs[0].copy())
        self._losses = mxnet.nd.concat(*losses, dim=0)

    def set_weights(self, values: Any) -> None:
        """Copy ``{name: float32 array}`` into the weights."""
        for name, array in self.weights.items():
            array[:] = values[name]

    def evaluation(self, weights: Dict[str, Any]) -> "Evaluation":
        """Return an ``Evaluation`` of the network with ``{name: NDArray}`` as weights, and its running statistics."""
        arguments = dict(weights, **self._constants)
        return Evaluation(self._outputs, self._mx_device, self._input_shape, arguments, self.running)

    def parameter_count(self) -> int:
        """Return how many values have a gradient, counted in MXNet's arrays."""
        return sum(array.size for array in self._executor.grad_dict.values() if array is not None)


class Evaluation(object):
    """The forward pass of a workload as it is used: running statistics and no dropout, with the weights of one moment.

    The weights are copies: for inference, MXNet's operators may turn weights into a layout of their own where they lie,
    and keep those that they saw first, so that every evaluation needs a binding of its own.
    """

    def __init__(
        self, symbol: Any, mx_device: Any, input_shape: Sequence[int], weights: Dict[str, Any], running: Dict[str, Any]
    ) -> None:
        """Bind ``symbol``, that of the output, to copies of ``weights`` and to the ``running`` statistics."""
        self._inputs = mxnet.nd.empty(input_shape, ctx=mx_device)
        arguments = {name: array.copy() for name, array in weights.items()}
        arguments[_INPUT] = self._inputs
        self._executor = symbol.bind(mx_device, arguments, grad_req="null", aux_states=running)

    def outputs(self, inputs: Any) -> Any:
        """Return the output for ``inputs``, a batch, both float32 numpy arrays."""
        self._inputs[:] = inputs
        return self._executor.forward(is_train=False)[0].asnumpy().astype("float32", copy=False)


def _symbols(workload: Dict[str, Any], label_smoothing: float) -> Tuple[Any, Any]:
    """Return the symbols of the losses, one per sample, and of the output."""
    values = {_INPUT: mxnet.sym.Variable(_INPUT)}
    for layer in workload["layers"]:
        make = _entry(KINDS, layer["kind"], "layer of the kind")
        inputs = list(layer["inputs"])
        if layer["kind"] == "embedding":
            inputs.append(layer["parameters"][0]["name"])
            values[inputs[-1]] = mxnet.sym.Variable(inputs[-1])
        elif layer["kind"] == "unembedding":
            inputs.append(layer["attributes"]["embedding"] + ".weight")
        values[layer["name"]] = make(layer, *[values[source] for source in inputs])
    outputs = values[workload["layers"][-1]["name"]]
    return _entry(LOSSES, workload["loss"], "loss")(outputs, values[_INPUT], label_smoothing), outputs


def _entry(table: Dict[str, Any], key: str, what: str) -> Any:
    if key not in table:
        raise ValueError("mxnet: there is no %s %r, only %s" % (what, key, ", ".join(sorted(table))))
    return table[key]
