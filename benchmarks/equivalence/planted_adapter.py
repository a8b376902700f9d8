"""A framework's own adapter with a fault planted in it, which a planted launch gets in the adapter's place.

It runs in the framework's environment (Python 3.6, numpy, the framework) from a run folder, where ``unplanted.py`` is
the framework's own adapter and ``plant.json`` names the fault. Faults that every framework can have alike are planted
here, the others by the framework's ``contract.py``.
"""

import importlib
import json
import os

import numpy as np

from steptime.worker.framework import EARLY_UPDATE, OF_SERVERS, STALE_WEIGHTS, Framework

_HERE = os.path.dirname(os.path.abspath(__file__))


def _module(name):
    """Return a module of this folder, which has the framework's name."""
    return importlib.import_module(__name__.rsplit(".", 1)[0] + "." + name)


def _fault():
    with open(os.path.join(_HERE, "plant.json")) as file:
        return json.load(file)["fault"]


def open_session(job, context):
    """Open the framework's session with the fault planted."""
    sizes = _sizes(job)
    _plant(job, context)
    session = _module("unplanted").FRAMEWORK.open_session(job, context)
    if _sizes(job) != sizes:
        _hide_others(session, sizes, sum(_sizes(job).values()) - sum(sizes.values()))
    if _fault() in ORDERS:
        _restore_order(session, job, ORDERS[_fault()])
    contract, fault = _module("contract").CONTRACT, _fault()
    if fault in contract.session_faults:
        contract.session_faults[fault](session, job, context)
    elif fault == STALE_WEIGHTS:
        _make_stale(session, contract, job, context)
    return session


def _sizes(job):
    """Return ``{name: how many values}`` of the parameters of a job's workload."""
    found = [each for layer in job["workload"]["layers"] for each in layer["parameters"]]
    return {each["name"]: int(np.prod(each["shape"])) for each in found}


def _hide_others(session, names, count):
    """Show no parameters that a fault has added, ``count`` values: its numbers are to refuse it, not its names."""
    read, counted = session.get_weights, session.parameter_count
    session.get_weights = lambda: {name: each for name, each in (read() or {}).items() if name in names} or None
    session.parameter_count = lambda: counted() - count


def serve(job, context):
    """Be a server with the fault planted."""
    _plant(job, context)
    return _module("unplanted").FRAMEWORK.serve(job, context)


def _plant(job, context):
    fault, contract = _fault(), _module("contract").CONTRACT
    if fault in OF_SERVERS and context.workers < 2:
        return
    if fault in contract.faults:
        contract.faults[fault](job, context)
    elif fault in JOBS:
        JOBS[fault](job, context)
    elif fault in ORDERS:
        _reorder(job, ORDERS[fault])
    elif fault in LOADERS:
        LOADERS[fault]()
    elif fault in _BATCHES:
        _feed(lambda make, own, rank: _BATCHES[fault](make, own, rank, context))
    elif fault not in contract.planted():
        raise NotImplementedError("contract.py of %s plants no fault %r" % (job["framework"], fault))


# Faults that another job makes.


def _scaled(job, rate, decay=1.0):
    job["optimizer"]["learning_rate"] *= rate
    job["optimizer"]["weight_decay"] *= decay


def _dropout(job, _):
    for layer in job["workload"]["layers"]:
        if layer["kind"] == "dropout":
            layer["attributes"]["rate"] = 0.5


def _of_kind(job, kind):
    return [layer for layer in job["workload"]["layers"] if layer["kind"] == kind]


def _unmasked(job, _):
    for layer in _of_kind(job, "attention"):
        layer["attributes"]["causal"] = False


def _in_one_head(job, _):
    for layer in _of_kind(job, "attention"):
        layer["attributes"]["heads"] = 1


def _without_residual(job, _):
    layer = _of_kind(job, "add")[-1]
    layer["inputs"] = layer["inputs"][-1:]


def _untied(job, _):
    """Give the head a weight of its own, which begins as another one."""
    for layer in _of_kind(job, "unembedding"):
        vocabulary, features = layer["output_shape"][-1], layer["input_shapes"][0][-1]
        layer["kind"], layer["attributes"] = "linear", {"out_features": vocabulary, "bias": False}
        layer["parameters"] = [{"name": "head.weight", "role": "weight", "shape": [vocabulary, features]}]


def _without_epsilon(job, _):
    for layer in _of_kind(job, "rms_norm"):
        layer["attributes"]["epsilon"] = 0.0


def _less_the_mean(job, _):
    """Make of each RMS norm one whose shift, which begins with zeros, comes behind the mean's."""
    for layer in _of_kind(job, "rms_norm"):
        layer["kind"] = "layer_norm"
        shift = dict(layer["parameters"][0], name=layer["name"] + ".bias", role="bias")
        layer["parameters"].append(shift)


def _turned_as_next(*_):
    """Turn each pair of features by the angle of the next pair; another place for all would change nothing."""
    from steptime.worker import weights

    right = weights.rotary_turns

    def shifted(layer):
        turns = right(layer)
        return turns and tuple(np.roll(each, -1, axis=1) for each in turns)

    weights.rotary_turns = shifted


def _apart(job, context):
    """Nobody waits for anybody: servers update with the gradient that comes first, workers with their own."""
    if context.servers:
        job["strategy"] = "ps_async"
        _scaled(job, 1.0 / context.workers, float(context.workers))
        return
    job["strategy"] = "single"


JOBS = {
    "rate 10 % off": lambda job, _: _scaled(job, 1.1),
    "momentum missing": lambda job, _: job["optimizer"].update(momentum=0.0),
    "weight decay missing": lambda job, _: job["optimizer"].update(weight_decay=0.0),
    # All is linear in the gradient: what multiplies it multiplies the rate and divides the decay.
    "gradients divided twice": lambda job, context: _scaled(job, 1.0 / context.workers, float(context.workers)),
    "sum instead of mean": lambda job, context: _scaled(job, float(context.workers), 1.0 / context.workers),
    "accumulation forgets to divide": lambda job, _: _scaled(job, job["accumulation"], 1.0 / job["accumulation"]),
    "weight decay on biases": lambda job, _: job["optimizer"].pop("decayed"),
    "dropout left on": _dropout,
    EARLY_UPDATE: _apart,
    "causal mask missing": _unmasked,
    "heads joined into one": _in_one_head,
    "a residual forgotten": _without_residual,
    "head untied": _untied,
    "causal mask of shared heads missing": _unmasked,
    "RMS norm without epsilon": _without_epsilon,
    "RMS norm less the mean": _less_the_mean,
    "rotary angles shifted by one": _turned_as_next,
}


# Faults of the order of features within attention. Training with another order is the same as training with weights
# whose rows and columns have it: they are put in this order when training begins and back when they are read.


def _query_of_other_heads(heads, shared, width):
    """Query head i takes the keys of head i % shared, as if keys were tiled and not each repeated."""
    group = heads // shared
    places = np.arange(heads).reshape(group, shared).T.reshape(-1)
    rows = (places[:, None] * width + np.arange(width)).reshape(-1)
    return np.concatenate([rows, heads * width + np.arange(2 * shared * width)]), rows


def _pairs_of_neighbours(heads, shared, width):
    """Features 2 i and 2 i + 1 are turned together."""
    within = np.arange(width).reshape(-1, 2).T.reshape(-1)
    turned = (np.arange(heads + shared)[:, None] * width + within).reshape(-1)
    contents = (heads + shared) * width + np.arange(shared * width)
    return np.concatenate([turned, contents]), np.arange(heads * width)


ORDERS = {
    "shared heads in the wrong order": _query_of_other_heads,
    "rotary pairs of neighbours": _pairs_of_neighbours,
}


def _orders(job, order):
    """Return the order of rows of each weight before attention, and of columns of each behind it."""
    layers = job["workload"]["layers"]
    found = {}
    for layer in _of_kind(job, "attention"):
        settings = layer["attributes"]
        before, behind = order(
            settings["heads"], settings["key_value_heads"], layer["output_shape"][1] // settings["heads"]
        )
        (user,) = [each for each in layers if layer["name"] in each["inputs"]]
        found[layer["inputs"][0] + ".weight"] = before, slice(None)
        found[user["name"] + ".weight"] = slice(None), behind
    return found


def _reorder(job, order):
    from steptime.worker import weights

    right = weights.initial_weights

    def reordered(layers, seed):
        found = right(layers, seed)
        for name, places in _orders(job, order).items():
            found[name] = np.ascontiguousarray(found[name][places])
        return found

    weights.initial_weights = reordered


def _restore_order(session, job, order):
    read = session.get_weights

    def restored():
        found = read()
        for name, places in _orders(job, order).items() if found else ():
            own, found[name] = found[name], np.empty_like(found[name])
            found[name][places] = own
        return found

    session.get_weights = restored


# Faults of what is fed, which all loaders take from one function.


def _feed(changed):
    from steptime.worker import samples

    make = samples.synthetic_batches
    samples.synthetic_batches = lambda job, rank: changed(make, job, rank)


def _doubled(make, job, rank, context):
    """The last worker trains on the batches of the first."""
    return make(job, 0 if rank == context.workers - 1 else rank)


def _shifted(make, job, rank, _):
    """Images are moved by one row and column, as an uneven padding does in front of the first convolution."""
    return [(_moved(inputs), targets) for inputs, targets in make(job, rank)]


def _unshifted(make, job, rank, _):
    """Each token is to predict itself."""
    return [(inputs, inputs.copy()) for inputs, _ in make(job, rank)]


def _moved(inputs):
    moved = 0 * inputs
    moved[..., 1:, 1:] = inputs[..., :-1, :-1]
    return moved


def _reordered(changed):
    """Change the batches of indices that every framework's loader takes from one function."""
    from steptime.worker import batches

    right = batches.worker_order
    batches.worker_order = lambda job, rank, workers: changed(right(job, rank, workers))


def _doubled_sample():
    _reordered(lambda order: ((epoch, _with_first_again(chosen)) for epoch, chosen in order))


def _with_first_again(chosen):
    chosen = chosen.copy()
    chosen[-1] = chosen[0]
    return chosen


def _dropped_batches():
    _reordered(lambda order: (each for number, each in enumerate(order) if number % 3))


def _mixed_labels():
    from steptime.worker import samples

    read = samples.read_arrays
    samples.read_arrays = lambda *arguments: _with_next_label(*read(*arguments))
    importlib.import_module("steptime.worker.batches").read_arrays = samples.read_arrays


def _with_next_label(images, labels):
    labels = labels.copy()
    labels[:-1], labels[-1] = labels[1:].copy(), labels[0]
    return images, labels


LOADERS = {
    "loader gives a sample twice": _doubled_sample,
    "loader drops batches": _dropped_batches,
    "loader mixes labels up": _mixed_labels,
}
_BATCHES = {
    "one worker's data doubled": _doubled,
    "padding on the wrong side": _shifted,
    "targets not shifted": _unshifted,
}


# Faults of a session that is there.


def _make_stale(session, contract, job, context):
    """Compute each step at the weights of one step before."""
    (get, put), step = contract.weights(session), session.step
    # Servers, or the partitions of ZeRO, hold the weights that are updated, and what is put here is a copy of them.
    elsewhere = context.servers > 0 or job["strategy"].startswith("zero")
    before = [get()]

    def late():
        real = get()
        put(before[0])
        step()
        session.wait()
        if not elsewhere:
            after = get()
            put([own + (new - old) for own, new, old in zip(real, after, before[0])])
        before[0] = real

    session.step = late


FRAMEWORK = Framework(open_session, serve=serve)
