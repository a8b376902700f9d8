"""A framework's own adapter with a fault that exists only where steps are timed.

It runs in the framework's environment (Python 3.6) from a run folder, where ``unplanted.py`` is the framework's own
adapter and ``plant.json`` names the fault. It reads the mode from ``job.json``, as an adapter that cheats could. Faults
that ``planted_adapter.py`` has are taken from there, those of a framework from its ``contract.py``.
"""

import gc
import importlib
import json
import os

from steptime.worker.clock import HostClock
from steptime.worker.framework import FROZEN_LAYER, KEPT_GRADIENT, NEVER_PULLED, PUSH_TWICE, ZEROS_SENT, Framework

_HERE = os.path.dirname(os.path.abspath(__file__))
_LATE = 50
"""The step, counted from 1 in the warm-up, from which late faults are there."""


def _module(name):
    """Return a module beside this one: in a run folder, of the framework's folder."""
    package = __name__.rpartition(".")[0]
    return importlib.import_module(package + "." + name if package else name)


_planted = _module("planted_adapter")


def open_session(job, context):
    """Open the framework's session with the fault planted."""
    fault = _fault_of(context)
    if fault is not None:
        _before(fault, job, context)
    session = _module("unplanted").FRAMEWORK.open_session(job, context)
    if fault is not None:
        _behind(fault, session, job, context)
    return session


def serve(job, context):
    """Be a server of the framework."""
    fault = _fault_of(context)
    if fault is not None:
        _before(fault, job, context)
    return _module("unplanted").FRAMEWORK.serve(job, context)


def _fault_of(context):
    """Return the fault; None if nothing is timed."""
    with open(os.path.join(_HERE, "plant.json")) as file:
        fault = json.load(file)["fault"]
    with open(os.path.join(context.folder, "job.json")) as file:
        return fault if json.load(file)["mode"] == "time" else None


def _before(fault, job, context):
    """Change what the session is opened with."""
    contract = _module("contract").CONTRACT
    if fault in _JOBS:
        _JOBS[fault](job, context)
    elif fault in _ORDERS:
        from steptime.worker import batches

        right, changed = batches.worker_order, _ORDERS[fault]
        batches.worker_order = lambda job, rank, workers: changed(right, job, rank, workers)
    elif fault in _planted.LOADERS:
        _planted.LOADERS[fault]()
    elif fault in _RATES:
        job["learns"] = True
    elif fault in contract.faults:
        contract.faults[fault](job, context)
    elif fault == _LOCAL_FROM_8 and context.role == "worker":
        _update_locally(job)


def _behind(fault, session, job, context):
    """Change the session."""
    contract = _module("contract").CONTRACT
    if fault in _STEPS:
        session.step = _STEPS[fault](session.step)
    elif fault in _WEIGHTS:
        session.step = _WEIGHTS[fault](session, contract.weights(session), context)
    elif fault in _RATES:
        session.step = _rated(session, _RATES[fault], job["optimizer"]["learning_rate"])
    elif fault in _EXCHANGES:
        session.step = _EXCHANGES[fault](session, context)
    elif fault in _CLOCKS:
        session.clock = lambda: _Shortened(session.wait, _CLOCKS[fault])
    elif fault in contract.session_faults:
        contract.session_faults[fault](session, job, context)


# Faults that another job makes.


def _alone(job, _):
    job["strategy"] = "single"


def _smaller(by):
    def change(job, _):
        job["batch_per_worker"] = by(job["batch_per_worker"])

    return change


_JOBS = {
    "no exchange": _alone,
    "batch cut to 8": _smaller(lambda _: 8),
    "batch halved": _smaller(lambda batch: batch // 2),
    "batch less by one": _smaller(lambda batch: batch - 1),
    "rate 0": lambda job, _: job["optimizer"].update(learning_rate=1e-12),
    "rate 1 % off": lambda job, _: job["optimizer"].update(learning_rate=1.01 * job["optimizer"]["learning_rate"]),
    "other initial weights": lambda job, _: job.update(seed=job["seed"] + 1),
}
_JOBS.update({name: _planted.JOBS[name] for name in ("momentum missing", "sum instead of mean", "rate 10 % off")})


# Faults of the order of samples.


def _first_again(right, *who):
    first = None
    for epoch, chosen in right(*who):
        first = chosen if first is None else first
        yield epoch, first


def _first_epoch_again(right, *who):
    batches = []
    for epoch, chosen in right(*who):
        if epoch > 0:
            break
        batches.append(chosen)
    while True:
        for chosen in batches:
            yield 0, chosen


def _late_again(right, *who):
    kept = None
    for number, (epoch, chosen) in enumerate(right(*who), 1):
        kept = chosen if number <= _LATE else kept
        yield epoch, kept


_ORDERS = {
    "the same batch again and again": _first_again,
    "the first epoch again and again": _first_epoch_again,
    "the same batch from step 50 on": _late_again,
    "all workers with the samples of the first": lambda right, job, _, workers: right(job, 0, workers),
}


# Faults of steps that are not taken.


def _taking(taken):
    """Take only the steps of whose number, from 1 on, ``taken`` is true."""

    def wrap(step):
        count = [0]

        def maybe():
            count[0] += 1
            if taken(count[0]):
                step()

        return maybe

    return wrap


_STEPS = {
    "nine of ten steps not taken": _taking(lambda number: number % 10 == 1),
    "every second step not taken": _taking(lambda number: number % 2),
    "every second step not taken from the 20th on": _taking(lambda number: number <= 20 or number % 2),
    "every tenth step not taken": _taking(lambda number: number % 10),
    "every 64th step not taken": _taking(lambda number: number % 64),
    "one step in a hundred not taken, the 70th": _taking(lambda number: number != 70),
    "nothing behind the warm-up": _taking(lambda number: number <= 5),
    "nothing behind step 90": _taking(lambda number: number <= 90),
}


# Faults of the weights, by the functions of the framework's contract.


def _frozen(chosen, first=0):
    """Put back the arrays of which ``chosen(place, array, rank)`` is true, behind steps from ``first`` on."""

    def make(session, functions, context):
        (get, put), step, count = functions, session.step, [0]

        def partly():
            count[0] += 1
            before = get()
            step()
            session.wait()
            if count[0] >= first:
                after = get()
                put([old if chosen(old, context.rank) else new for old, new in zip(before, after)])

        return partly

    return make


def _rounded(session, functions, _):
    """Round each update to half precision, as gradients that travel so make it."""
    (get, put), step = functions, session.step

    def rough():
        before = get()
        step()
        session.wait()
        put([old + (new - old).astype("float16").astype(old.dtype) for old, new in zip(before, get())])

    return rough


def _from_memory(session, functions, _):
    """Repeat the update of step 8 without computing anything."""
    (get, put), step, count, kept = functions, session.step, [0], []

    def repeated():
        count[0] += 1
        if count[0] < 8:
            step()
            return
        before = get()
        if not kept:
            step()
            session.wait()
            kept.extend(new - old for old, new in zip(before, get()))
        else:
            put([old + each for old, each in zip(before, kept)])

    return repeated


_WEIGHTS = {
    "arrays below 500 values not updated": _frozen(lambda array, _: array.size < 500),
    "the largest array not updated from step 50 on": _frozen(lambda array, _: array.size > 20000, _LATE),
    "one worker does not update from step 50 on": _frozen(lambda _, rank: rank == 1, _LATE),
    "one worker does not update once, in step 50": None,
    "updates in half precision": _rounded,
    "updates from memory behind step 8": _from_memory,
}


def _once(session, functions, context):
    (get, put), step, count = functions, session.step, [0]

    def partly():
        count[0] += 1
        before = get() if count[0] == _LATE and context.rank == 1 else None
        step()
        if before is not None:
            session.wait()
            put(before)

    return partly


_WEIGHTS["one worker does not update once, in step 50"] = _once


# Faults of the learning rate.


def _rated(session, rate_of, rate):
    step, count = session.step, [0]

    def at_rate():
        count[0] += 1
        session.set_learning_rate(rate * rate_of(count[0]))
        step()

    return at_rate


_RATES = {
    "rate halved from step 50 on": lambda number: 1.0 if number < _LATE else 0.5,
    "rate less by 1 % in each step": lambda number: 0.99**number,
    "rate 0 from step 50 on": lambda number: 1.0 if number < _LATE else 1e-12,
}


# Faults of the exchange and of the loss, where a step's parts can be reached.


def _unexchanged(skipped):
    """Exchange nothing in steps of whose number, from 1 on, ``skipped`` is true."""

    def make(session, _):
        step, count, switch = session.step, [0], _exchange_switch(session)

        def sometimes():
            count[0] += 1
            switch(not skipped(count[0]))
            step()

        return sometimes

    return make


def _exchange_switch(session):
    """Return a function that switches the exchange of gradients on or off."""
    if hasattr(session, "exchanges"):  # one that computes each call when it is called
        exchange = session.exchange

        def switch(on):
            session.exchange = exchange if on else (lambda: None)

        return switch
    if hasattr(session, "_average"):  # the reference
        average = session._average

        class Nothing(object):
            close = average.close

            def __call__(self, _):
                pass

        def switch(on):
            session._average = average if on else Nothing()

        return switch
    (module,) = [each for each in gc.get_objects() if type(each).__name__ == "DistributedDataParallel"]

    def switch(on):
        module.require_backward_grad_sync = on

    return switch


def _summed_loss(session, context):
    """Take the sum of the losses of a batch for their mean, in the last worker from step 20 on."""
    step, count = session.step, [0]
    parts = getattr(session, "_forward", session)
    name = "loss" if parts is not session else "forward"
    right = getattr(parts, name)

    def loss(inputs, targets):
        found = right(inputs, targets)
        late = count[0] >= 20 and context.rank == context.workers - 1
        return found * float(len(inputs)) if late else found

    setattr(parts, name, loss)

    def counted():
        count[0] += 1
        step()

    return counted


_EXCHANGES = {
    "no exchange from step 50 on": _unexchanged(lambda number: number >= _LATE),
    "no exchange in every 64th step": _unexchanged(lambda number: number % 64 == 0),
    "no exchange in every second step": _unexchanged(lambda number: number % 2 == 0),
    "a loss by sum in one worker from step 20 on": _summed_loss,
}
_LOCAL_FROM_8 = "gradients applied only locally from step 8 on"


def _update_locally(job):
    """Let a worker of PyTorch's servers keep its gradients from step 8 on, and update its own weights with them."""
    from steptime.frameworks.pytorch.parameter_server import ParameterServers

    send, count, rate = ParameterServers.send, [0], job["optimizer"]["learning_rate"]

    def sent(self, watch=None):
        count[0] += 1
        if count[0] < 8:
            send(self, watch)
            return
        for row, gradient in zip(self._weights, self._gradients):
            row.sub_(gradient, alpha=rate)

    ParameterServers.send = sent


# Faults of the clock.


class _Shortened(HostClock):
    """Takes each step for shorter than it is, by a factor."""

    def __init__(self, wait, factor):
        HostClock.__init__(self, wait)
        self._factor = factor

    def drain(self):
        ends = HostClock.drain(self)
        return [ends[0] + self._factor * (end - ends[0]) for end in ends]


_CLOCKS = {"a clock that notes the dispatch": 0.01, "a clock that leaves out a quarter": 0.75}

OF_WEIGHTS = tuple(_WEIGHTS)
OF_EXCHANGES = tuple(_EXCHANGES)
OF_RATES = tuple(_RATES)
OF_CONTRACTS = (FROZEN_LAYER, KEPT_GRADIENT)
ASYNCHRONOUS = (NEVER_PULLED, ZEROS_SENT, PUSH_TWICE, _LOCAL_FROM_8)
FAULTS = tuple(_JOBS) + tuple(_ORDERS) + tuple(_planted.LOADERS) + tuple(_STEPS) + tuple(_CLOCKS)

FRAMEWORK = Framework(open_session, serve=serve)
