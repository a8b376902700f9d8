"""Calls of a library that are a region of the step or a request to a loader, whichever library it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import patches, process
from .batch_amount import NO_BATCH, BatchAmount, BatchReader
from .object_numbers import number_of
from .record_file import now

if TYPE_CHECKING:
    from .usual_steps import UsualSteps


def region_of(  # noqa: PLR0913 - where it is one
    owner: Any,
    name: str,
    region: str,
    compiling: Callable[[], bool] = patches.never,
    not_inside: tuple[str, ...] = (),
    *,
    usual: UsualSteps | None = None,
) -> None:
    """Make calls of ``owner.name`` a region, but for those inside of the same one or of one of ``not_inside``.

    ``usual`` are steps that it may be a part of.
    """
    recorder = process.recorder()

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        recorder.saves += region == "save"
        if not recorder.is_mine() or recorder.inside(region, *not_inside):
            return None
        recorder.enter(region)
        return region

    def after(mark: Any, returned: bool) -> None:  # noqa: ARG001 - the form of all
        (recorder.leave_between if region == "gradient" else recorder.leave)(region)

    hooks = (before, after) if usual is None else usual.hook_region(region, before, after)
    patches.measure(owner, name, *hooks, compiling)


def requests_of(  # noqa: PLR0913 - what a request is made of
    owner: Any,
    name: str,
    data: Callable[[Any], Any],
    compiling: Callable[[], bool],
    region: str = "",
    *,
    read: Callable[[Any], BatchAmount] | None = None,
    asked: Callable[[Any], int | None] | None = None,
    only: Callable[[Any], bool] | None = None,
    usual: UsualSteps | None = None,
) -> None:
    """Make ``owner.name`` a request to the loader of the ``data`` that the object holds which it is called on.

    ``region`` names the region, by default `input` or, where the call raises, `epoch`; ``read`` returns what a batch
    holds, by default as its arrays show it; ``asked`` returns how many samples it was asked to have; ``only`` returns
    whether a loader is one whose calls count; ``usual`` are steps that it may be a part of.
    """
    recorder = process.recorder()
    source = source_of(data)
    look = _keeping(data) if region else read or BatchReader().read

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        if not recorder.is_mine():
            return None if region else patches.CallMark(None, now())
        if recorder.stack:
            return None
        mark = patches.CallMark(source(args[0]), args[0] if asked or region else None)
        recorder.request_begin()
        return mark

    def after(mark: Any, returned: bool) -> None:
        batch, mark.result = mark.result, None
        amount = NO_BATCH if not returned else look((mark.given[1], batch) if region else batch)
        if mark.given[0] is None:
            if returned:
                recorder.elsewhere_requests.add(now() - mark.given[1], amount)
            return
        if asked and returned:
            size = asked(mark.given[1])
            if amount is not None:
                amount.ask(size, batch)
        iterator = id(mark.given[1]) if asked else 0
        recorder.request_end(mark.given[0], region or ("input" if returned else "epoch"), amount, iterator)

    hooks = (_filtered(before, only), after) if usual is None else usual.hook_requests(source, before, after)
    patches.measure(owner, name, *hooks, compiling)


def request_begins(recorder: Any) -> patches.Before:
    """Return what begins a request to a loader ahead of a call, in the thread that trains and in no other region."""

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        if recorder.stack or not recorder.is_mine():
            return None
        recorder.request_begin()
        return patches.CallMark()

    return before


def _filtered(before: patches.Before, only: Callable[[Any], bool] | None) -> patches.Before:
    return before if only is None else lambda args, kwargs: before(args, kwargs) if only(args[0]) else None


def source_of(data: Callable[[Any], Any]) -> Callable[[Any], int]:
    """Return a function that returns the number of the ``data`` which a loader or its iterator holds."""
    return lambda loader: number_of(data(loader), loader)


def _keeping(data: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return what keeps the number of a loader's data for its iterator, since the loader may be gone before that."""

    def keep(made: Any) -> None:
        loader, iterator = made
        number_of(data(loader), iterator)

    return keep


def itself(loader: Any) -> Any:
    """Return a loader as what it reads, where that is not known."""
    return loader


def forward_of(
    owner: Any,
    name: str,
    training: Callable[[Any, Any], bool],
    compiling: Callable[[], bool] = patches.never,
    trainable: Callable[[Any], bool] | None = None,
) -> None:
    """Make calls of ``owner.name`` the forward of an outermost module.

    ``training`` returns whether a call with these arguments is for a gradient, ``trainable`` whether a module has
    weights of its own, as a loss has none.
    """
    recorder = process.recorder()

    def before(args: Any, kwargs: Any) -> Any:
        if not recorder.is_mine() or recorder.inside("forward", "nograd", "backward", "input"):
            return None
        trains = training(args, kwargs)
        weighs = trainable is None or not trains or trainable(args[0])
        return recorder.forward_begin(training=trains, trainable=weighs)

    patches.measure(owner, name, before, lambda mark, _: recorder.forward_end(mark), compiling)


def backward_of(owner: Any, name: str, compiling: Callable[[], bool] = patches.never) -> None:
    """Make calls of ``owner.name`` a backward pass."""
    recorder = process.recorder()

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        if not recorder.adopt_thread() or recorder.inside("backward", "input"):
            return None
        recorder.backward_begin()
        return True

    patches.measure(owner, name, before, lambda _, __: recorder.backward_end(synchronised=None), compiling)


def collective_of(
    owner: Any,
    name: str,
    kind: str,
    amount: Callable[[Any], int | None],
    compiling: Callable[[], bool] = patches.never,
) -> None:
    """Make calls of ``owner.name`` a collective of as many bytes as ``amount`` finds; of None it is not one."""
    recorder = process.recorder()

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        if not recorder.is_mine():
            recorder.elsewhere = True
            return None
        if recorder.inside("collective"):
            return None
        size = amount(args)
        if size is None:
            return None
        recorder.enter("collective")
        return (size,)

    def after(mark: Any, returned: bool) -> None:  # noqa: ARG001 - the form of all
        timed = recorder.leave("collective")
        if timed is not None:
            recorder.collective(kind, mark[0], timed[0], timed[1])

    patches.measure(owner, name, before, after, compiling)


def update_of(
    owner: Any, name: str, look: Callable[[Any], None] | None = None, compiling: Callable[[], bool] = patches.never
) -> None:
    """Make calls of ``owner.name`` an update; ``look`` is shown the object that it is called on."""
    recorder = process.recorder()

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        if not recorder.is_mine() or recorder.inside("update", "input"):
            return None
        if look is not None:
            look(args[0])
        recorder.update_begin()
        return True

    patches.measure(owner, name, before, lambda _, __: recorder.update_end(), compiling)


def first_call_elsewhere(begin: int) -> tuple[int, int, int] | None:
    """Record the calling thread from ``begin`` on, when a call began there that is now known to train.

    Return its begin, end and time, or None if a step has begun in another thread.
    """
    recorder = process.recorder()
    if not recorder.adopt_thread(begin):
        return None
    recorder.stack.append(["compile", begin, 0])
    return recorder.leave("compile")


def waits_of(owner: Any, *names: str) -> None:
    """Make calls of methods or functions, or reading properties, a wait of the host for the device."""
    recorder = process.recorder()

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        if recorder.begin is None or recorder.stack or not recorder.is_mine():
            return None
        recorder.enter("wait")
        return True

    def after(mark: Any, returned: bool) -> None:  # noqa: ARG001 - the form of all
        recorder.leave_between("wait")

    for name in names:
        patch = patches.Patch(owner, name)
        inner = patch.original
        if isinstance(inner, property):
            patch.put(property(patches.measured(patch, inner.__get__, before, after), doc=inner.__doc__))
        else:
            patch.remove()
            patches.measure(owner, name, before, after)
