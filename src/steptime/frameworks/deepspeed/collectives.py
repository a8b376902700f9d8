"""A hook on the collectives that DeepSpeed calls: ablation runs watch them, and leave them out."""

import time

_COLLECTIVES = ("all_reduce", "reduce", "reduce_scatter_tensor", "all_gather_into_tensor")


class CollectiveHook(object):
    """Stands between DeepSpeed and the collectives of torch that it uses.

    ``quiet``
        Whether nothing is sent: reductions leave a worker its own values, and what would be gathered is as far as
        possible what lies there already.
    ``calls``
        What was called with since ``watch``, ``(function, positional, named)``; None while nobody watches.
    ``seen``
        Likewise ``[name, bytes, ready_s, done_s]`` of each call.
    ``at_next``
        A function that is called once, before the next collective, with the moment of that.
    """

    def __init__(self, backend):
        """Hook into DeepSpeed's ``backend``, the object through which all that it sends goes."""
        self.quiet = False
        self.calls = None
        self.seen = None
        self.at_next = None
        self._reduced = None
        for name in _COLLECTIVES:
            setattr(backend, name, self._hooked(name, getattr(backend, name)))

    def watch(self):
        """Note every call from now on."""
        self.calls, self.seen, self._reduced = [], [], []

    def clear(self):
        """Set what was reduced to zero: the calls can be repeated then without growing beyond all bounds."""
        for tensor in self._reduced:
            tensor.zero_()

    def ignore(self):
        """Note none any more."""
        self.calls = self.seen = self.at_next = self._reduced = None

    def _hooked(self, name, collective):
        gathers = name.startswith("all_gather")

        def call(*positional, **named):
            at_s = time.monotonic()
            if self.at_next is not None:
                at_next, self.at_next = self.at_next, None
                at_next(at_s)
            if self.quiet:
                if gathers:
                    _repeat(*positional, **named)
                return _Finished() if named.get("async_op") else None
            if self.calls is None:
                return collective(*positional, **named)
            self.calls.append((collective, positional, named))
            self._reduced += [] if gathers else [_whole(positional, named)]
            return self._watched(at_s, gathers, collective, positional, named)

        return call

    def _watched(self, at_s, gathers, collective, positional, named):
        whole = _whole(positional, named)
        kind = "weights" if gathers else "gradients" if whole.dim() else "norm"  # one number is the gradients' norm
        piece = ["%s %d" % (kind, len(self.seen)), whole.numel() * whole.element_size(), at_s, None]
        self.seen.append(piece)
        work = collective(*positional, **named)
        if work is None or not named.get("async_op"):
            piece[3] = time.monotonic()
            return work
        return _Watched(work, piece)


class _Finished(object):
    """The handle of what was not sent."""

    def wait(self):
        """Return at once."""

    def is_completed(self):
        return True


class _Watched(object):
    """The handle of what is under way; it is back when it has been waited for."""

    def __init__(self, work, piece):
        self._work = work
        self._piece = piece

    def wait(self):
        self._work.wait()
        self._piece[3] = self._piece[3] or time.monotonic()

    def is_completed(self):
        return self._work.is_completed()


def _whole(positional, named):
    """Return that tensor of a call which is as long as what all workers have together."""
    tensors = [named[name] for name in ("output_tensor", "input_tensor", "tensor") if name in named]
    return max(tensors or positional[:1], key=lambda tensor: tensor.numel())


def _repeat(output_tensor, input_tensor, **_):
    """Fill fresh memory with the worker's own part: anything could lie there, and slow arithmetic down.

    Weights that are gathered where they lie keep the parts that other workers sent last.
    """
    if output_tensor.untyped_storage().data_ptr() != input_tensor.untyped_storage().data_ptr():
        output_tensor.view(-1, input_tensor.numel()).copy_(input_tensor.view(1, -1))
