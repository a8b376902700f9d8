"""A workload as Caffe's own solver with its net: in place where that is safe, fed from memory, updated by Caffe."""

import os
import tempfile

import caffe
import numpy
from caffe.proto import caffe_pb2
from google.protobuf import text_format

from steptime.frameworks.caffe.layers import KINDS, OVERWRITABLE

_INPUT, _TARGET, _LOSS = "input", "input/target", "output/loss"  # workloads have no slashes in their names


class WorkloadSolver(object):
    """The net and the solver of one worker.

    Args:
        workload: a workload's JSON.
        batch: samples per batch.
        optimizer: the job's ``optimizer``.
        share: of this worker in the global batch, as which its gradients are scaled: their sum over all workers is
            the gradient of the global batch.
        seed: of this worker's dropout masks.

    Raises ValueError for a layer that Caffe cannot compute, with its name.
    """

    def __init__(self, workload, batch, optimizer, share, seed):
        self._layers = workload["layers"]
        self._loss_scale = _loss_scale(workload)
        message = _net(workload, batch, share * self._loss_scale)
        self._solver = _solver(message, optimizer, seed)
        self.net = self._solver.net
        self._output = self.net.blobs[message.layer[-1].bottom[0]]
        self._loss = self.net.blobs[_LOSS].data
        self._feeding = None
        self._last = len(self.net._layer_names) - 1  # noqa: SLF001 - pycaffe has no other
        self._parameters = [(name, self.net.params[holder][index]) for name, holder, index in _places(self._layers)]

    def feed_from(self, inputs, targets):
        """Let the net read its batches from two arrays, one after the other and round and round, without copies.

        Args:
            inputs: float32 (batches * batch,) + input shape.
            targets: float32 (batches * batch,).
        """
        shape = self.net.blobs[_INPUT].data.shape[1:]
        self._feeding = (inputs.reshape((-1,) + shape), targets.reshape((-1, 1, 1, 1)))
        # Once: Caffe keeps every array that it was ever given.
        self.net.set_input_arrays(*self._feeding)

    def on_gradients(self, callback):
        """Have ``callback`` called without arguments in each step, after the backward pass and before the update."""
        self._solver.add_callback(_nothing, callback)

    def on_layer_gradients(self, callback):
        """Have ``callback`` called in the backward pass after each layer, with the gradients that it completed.

        They are a list of float32 arrays, the memory of Caffe's own; it is empty for most layers.
        """
        holders = {name: holder for name, holder, _ in _places(self._layers)}
        done = {}
        for name, gradient in self.gradients():
            done.setdefault(holders[name], []).append(gradient)
        by_index = [done.get(name, []) for name in self.net._layer_names]  # noqa: SLF001 - pycaffe has no other
        self.net.after_backward(lambda index: callback(by_index[index]))

    def gradients(self):
        """Return pairs of each parameter's name and its gradient, the memory of Caffe's own, in forward order."""
        return [(name, blob.diff) for name, blob in self._parameters]

    def step(self):
        """Train on the next batch: forward, backward, what was asked to be called, update."""
        self._solver.step(1)

    # The same step in pieces, for its breakdown: what ``Solver::Step`` calls, in its order.

    def take_batch(self):
        """Let the data layer go on to the next batch of its ring, without computing anything."""
        self.net._forward(0, 0)  # noqa: SLF001 - the public method copies the results

    def forward(self):
        """Compute the loss of the batch that was taken last."""
        self.net._forward(1, self._last)  # noqa: SLF001

    def backward(self):
        """Compute the gradients, and call ``on_layer_gradients`` with them."""
        self.net.clear_param_diffs()
        self.net._backward(self._last, 0)  # noqa: SLF001

    def update(self):
        """Update the weights with the gradients that are here."""
        self._solver.apply_update()

    def loss(self):
        """Return the loss of the last batch."""
        return float(self._loss) * self._loss_scale

    def parameter_count(self):
        """Return how many values Caffe trains."""
        return sum(blob.count for _, blob in self._parameters)

    def output_shape(self):
        """Return the shape of the last batch's output."""
        return list(self._output.data.shape)

    def get_weights(self):
        """Return ``{name: array}`` of all trained values, copied, in the workload's layout."""
        return {name: numpy.array(blob.data) for name, blob in self._parameters}

    def set_weights(self, weights):
        """Take over values of the form that ``get_weights`` returns."""
        for name, blob in self._parameters:
            blob.data[...] = weights[name]


def _nothing():
    """Stand in for a callback at the start of a step."""


def _loss_scale(workload):
    """Factor from Caffe's loss to the workload's: Caffe halves squares and averages them over samples only."""
    if workload["loss"] != "mean_squared_error":
        return 1.0
    return 2.0 / float(numpy.prod(workload["layers"][-1]["output_shape"]))


def _net(workload, batch, loss_weight):
    """Return the NetParameter of a workload and its loss."""
    net = caffe_pb2.NetParameter(name=workload["name"])
    data = net.layer.add(name="input/memory", type="MemoryData", top=[_INPUT, _TARGET])
    data.memory_data_param.batch_size = batch
    shape = (list(workload["input_shape"]) + [1, 1])[:3]
    data.memory_data_param.channels, data.memory_data_param.height, data.memory_data_param.width = shape
    blob_of, made_by, uses = {_INPUT: _INPUT}, {_INPUT: "MemoryData"}, _uses(workload["layers"])
    for layer in workload["layers"]:
        bottoms = [blob_of[name] for name in layer["inputs"]]
        messages = KINDS[layer["kind"]](layer)
        alone = len(layer["inputs"]) == 1 and uses[layer["inputs"][0]] == 1
        if not messages:  # another name for the same blob, which both names' readers use
            blob_of[layer["name"]] = bottoms[0]
            made_by[layer["name"]] = made_by[layer["inputs"][0]]
            uses[layer["name"]] += uses[layer["inputs"][0]] - 1
            continue
        source = made_by[layer["inputs"][0]]
        for index, message in enumerate(messages):
            message.name = layer["name"] if not index else "%s/%s" % (layer["name"], message.type.lower())
            in_place = alone and len(bottoms) == 1 and source in OVERWRITABLE.get(message.type, ())
            top = bottoms[0] if in_place else message.name
            message.bottom.extend(bottoms)
            message.top.append(top)
            net.layer.add().CopyFrom(message)
            bottoms, source, alone = [top], message.type, True
        blob_of[layer["name"]], made_by[layer["name"]] = bottoms[0], source
    squared = workload["loss"] == "mean_squared_error"
    loss = net.layer.add(name=_LOSS, type="EuclideanLoss" if squared else "SoftmaxWithLoss", top=[_LOSS])
    loss.bottom.extend([blob_of[workload["layers"][-1]["name"]], _INPUT if squared else _TARGET])
    loss.loss_weight.append(loss_weight)
    return net


def _uses(layers):
    """How many layers read each layer's output; the loss reads the last one's."""
    uses = dict.fromkeys([_INPUT] + [layer["name"] for layer in layers], 0)
    for layer in layers:
        for name in layer["inputs"]:
            uses[name] += 1
    uses[layers[-1]["name"]] += 1
    return uses


def _solver(net, optimizer, seed):
    """Return Caffe's SGD: v = momentum * v + rate * gradient, w = w - v; the protocol's rule for a constant rate."""
    message = caffe_pb2.SolverParameter(
        type="SGD",
        base_lr=optimizer["learning_rate"],
        lr_policy="fixed",
        momentum=optimizer["momentum"],
        weight_decay=optimizer["weight_decay"],
        random_seed=seed,
        display=0,
        snapshot_after_train=False,
        solver_mode=caffe_pb2.SolverParameter.CPU,
    )
    message.net_param.CopyFrom(net)
    handle, path = tempfile.mkstemp(suffix=".prototxt")  # Caffe reads files only
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text_format.MessageToString(message))
        return caffe.SGDSolver(path)
    finally:
        os.unlink(path)


def _places(layers):
    """Yield each parameter's name, the name of Caffe's layer that holds it, and its index in that layer."""
    for layer in layers:
        holder = layer["name"] + ("/scale" if layer["kind"] == "batch_norm" else "")
        for index, parameter in enumerate(layer["parameters"]):
            yield parameter["name"], holder, index
