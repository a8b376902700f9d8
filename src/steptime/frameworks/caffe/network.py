"""A workload as Caffe's own solver with its net: in place where that is safe, fed from memory, updated by Caffe."""

import contextlib
from typing import Any, Dict

import caffe
import numpy
from caffe.proto import caffe_pb2

from steptime.frameworks.caffe.layers import KINDS, OVERWRITABLE
from steptime.frameworks.caffe.solvers import JobSolver, matrix_file, text_file

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
        label_smoothing: share of the target that is spread evenly over all classes.

    Raises ValueError for a layer that Caffe cannot compute, with its name, and for an optimizer that it does not have.
    """

    def __init__(self, workload, batch, optimizer, share, seed, label_smoothing=0.0):  # noqa: PLR0913, PLR0917 - one per fact
        self._workload, self._batch = workload, batch
        self._layers = workload["layers"]
        self._loss_scale = _loss_scale(workload)
        with _net(workload, batch, share * self._loss_scale, label_smoothing) as message:
            self._job_solver = JobSolver(message, optimizer, seed)
        self._solver = self._job_solver.solver
        self.net = self._solver.net
        self._evaluation = None
        for layer in self._layers:
            if layer["kind"] == "batch_norm":
                self._start_running(layer)
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
        done: Dict[Any, Any] = {}
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

    def set_learning_rate(self, rate):
        """Let the steps that follow update with another rate."""
        self._job_solver.set_learning_rate(rate)

    def outputs(self, inputs):
        """Return the output for ``inputs``, both float32 arrays, with running statistics and without dropout."""
        if self._evaluation is None:
            message, last = _evaluation_net(self._workload, self._batch)
            with text_file(message) as path:
                self._evaluation = caffe.Net(path, caffe.TEST)
            self._evaluation.share_with(self.net)
            self._evaluated = self._evaluation.blobs[last]
        data = self._evaluation.blobs[_INPUT].data
        data[...] = inputs.reshape(data.shape)
        self._evaluation._forward(0, len(self._evaluation._layer_names) - 1)  # noqa: SLF001 - as in ``take_batch``
        return numpy.array(self._evaluated.data).reshape(self._output.data.shape)

    def state(self):
        """Return all that training goes on from, as ``{name: array}``."""
        found = self._job_solver.state()
        found.update({name: numpy.array(blob.data) for name, blob in self._saved()})
        return found

    def set_state(self, arrays):
        """Take over what ``state`` returned."""
        for name, blob in self._saved():
            blob.data[...] = arrays[name]
        self._job_solver.set_state(arrays, self._trained_shapes())

    def close(self):
        """Remove the solver's files."""
        self._job_solver.close()

    def _saved(self):
        """Yield a name and Caffe's blob of each trained value and running statistic."""
        for name, blob in self._parameters:
            yield "weight/" + name, blob
        for layer in self._layers:
            if layer["kind"] == "batch_norm":
                for index, blob in enumerate(self.net.params[layer["name"]]):
                    yield "running/%s/%d" % (layer["name"], index), blob

    def _trained_shapes(self):
        """Return the shape of each array for which the solver keeps a history, in the solver's order."""
        return [tuple(blob.shape) for name in self.net.params for blob in self.net.params[name]]

    def _start_running(self, layer):
        """Let the running statistics of batch normalisation start from the mean 0 and the variance 1.

        Caffe keeps sums and a count, in which the batches fade; with the count towards which it goes from the start,
        every batch has the weight of the workload.
        """
        means, variances, count = self.net.params[layer["name"]]
        means.data[...] = 0.0
        variances.data[...] = count.data[...] = 1.0 / layer["attributes"]["momentum"]

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


@contextlib.contextmanager
def _net(workload, batch, loss_weight, label_smoothing):
    """Give the NetParameter of a workload and its loss, with the file that it names."""
    net = caffe_pb2.NetParameter(name=workload["name"])
    data = net.layer.add(name="input/memory", type="MemoryData", top=[_INPUT, _TARGET])
    data.memory_data_param.batch_size = batch
    shape = _image_shape(workload)
    data.memory_data_param.channels, data.memory_data_param.height, data.memory_data_param.width = shape
    last = _add_layers(net, workload)
    squared = workload["loss"] == "mean_squared_error"
    loss = net.layer.add(name=_LOSS, type="EuclideanLoss" if squared else "SoftmaxWithLoss", top=[_LOSS])
    loss.bottom.extend([last, _INPUT if squared else _TARGET])
    loss.loss_weight.append(loss_weight)
    if squared or not label_smoothing:
        yield net
        return
    # The loss that takes a row of a matrix as the target of each class.
    classes = workload["classes"]
    targets = (1.0 - label_smoothing) * numpy.eye(classes) + label_smoothing / classes
    with matrix_file(targets) as path:
        loss.type = "InfogainLoss"
        loss.infogain_loss_param.source = path
        yield net


def _evaluation_net(workload, batch):
    """Return the NetParameter of a workload without its loss, and the name of the last blob."""
    net = caffe_pb2.NetParameter(name=workload["name"])
    data = net.layer.add(name="input/memory", type="Input", top=[_INPUT])
    data.input_param.shape.add(dim=[batch] + _image_shape(workload))
    return net, _add_layers(net, workload)


def _image_shape(workload):
    """Return channels, height and width of a sample, as Caffe's data layers want them."""
    return (list(workload["input_shape"]) + [1, 1])[:3]


def _add_layers(net, workload):
    """Add the layers of ``workload`` to the NetParameter ``net``; return the name of the last one's blob."""
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
    return blob_of[workload["layers"][-1]["name"]]


def _uses(layers):
    """How many layers read each layer's output; the loss reads the last one's."""
    uses = dict.fromkeys([_INPUT] + [layer["name"] for layer in layers], 0)
    for layer in layers:
        for name in layer["inputs"]:
            uses[name] += 1
    uses[layers[-1]["name"]] += 1
    return uses


def _places(layers):
    """Yield each parameter's name, the name of Caffe's layer that holds it, and its index in that layer."""
    for layer in layers:
        holder = layer["name"] + ("/scale" if layer["kind"] == "batch_norm" else "")
        for index, parameter in enumerate(layer["parameters"]):
            yield parameter["name"], holder, index
