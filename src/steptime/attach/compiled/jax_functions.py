"""JAX: calls of jitted functions, the host's waits for the device, and when the device had finished a step.

`jax.jit` returns a stand-in for its function, below which the fast path stays. What a function is shows in its first
call: one that returns as many new arrays of its arguments' shapes as a model has makes a step, and of fewer where its
program holds a gradient.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import types
import weakref
from typing import Any, Callable

from .. import patches, process
from ..library_calls import first_call_elsewhere, waits_of
from ..record_file import now
from . import jax_programs
from .argument_amounts import REPEATED as SEVERAL
from .argument_amounts import ArgumentAmounts, find_data, note_amount
from .call_flops import call_flops
from .jax_waits import DeviceWaits

# Arrays of the same shapes in arguments and results, from which on a function is one of a training loop.
FEW = 4
# Arrays that a state has for one of its weights at most, about: itself, moments and an average.
KEPT_OF_EACH = 4
# Arrays of its state by which a call is known to have that of the call before, about.
LOOKED_AT = 8
# Calls before the first step, beyond which a function is looked at no more.
MOST_LOOKS = 1000
HELPER, EVALUATION, STEP = "helper", "evaluation", "step"
COUNTED = "floating-point operations are as XLA counts them in a step, and products in loops as often as these run"
REPEATED = "a step is a call of {name}, which computes gradients {often} in a loop: micro-steps, or steps of its own"
NO_GRADIENT = "a step is a call of {name}, which returns arrays like those it takes: no gradient was seen in it"
# What optax keeps in the state of an optimizer whose calls are not an update each.
OF_STATES = {
    "MultiStepsState": "a step is a call of {name}: optax.MultiSteps gathers the gradients of several for one update",
    "ApplyIfFiniteState": "a step is a call of {name}: optax.apply_if_finite may leave its update out, unseen",
}
REASON = "the whole step is one compiled program, inside which JAX shows no times"

_made: list[JaxFunctions] = []


def install(jax: Any) -> None:
    """Patch ``jax``, which is imported whole."""
    functions = JaxFunctions(jax)
    _made.append(functions)
    for name in ("jit", "pmap"):
        if hasattr(jax, name):
            functions.patch(name)
    compiled = getattr(getattr(jax, "stages", None), "Compiled", None)
    if compiled is not None:
        functions.patch_compiled(compiled)
    array = importlib.import_module("jax._src.array").ArrayImpl
    for owner, name in ((jax, "block_until_ready"), (array, "block_until_ready"), (array, "_value")):
        if hasattr(owner, name):
            waits_of(owner, name)


def evaluation_made_by(owner: Any, name: str) -> None:
    """Know the functions that are jitted in calls of ``owner.name`` as evaluations, whatever they return."""

    def before(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
        for functions in _made:
            functions.evaluating = True
        return True

    def after(mark: Any, returned: bool) -> None:  # noqa: ARG001 - the form of all
        for functions in _made:
            functions.evaluating = False

    patches.measure(owner, name, before, after)


class JaxFunctions:
    """The jitted functions of this process, and what is known of them together."""

    def __init__(self, jax: Any) -> None:
        self.jax = jax
        self.recorder = process.recorder()
        self.leaves: Callable[[Any], list[Any]] = jax.tree_util.tree_leaves
        core = importlib.import_module("jax._src.core")
        self.is_eager: Callable[[], bool] = getattr(core, "trace_state_clean", lambda: True)
        self.numbers = itertools.count()
        self.state: set[Any] = set()  # shapes of what steps take and return
        self.arrays = 0  # of that, which an evaluation takes
        self.products: dict[str, float] = {}  # of steps, by precision
        self.trained: list[str] = []  # labels of the functions of a step that were seen to hold a gradient
        self.waits = DeviceWaits(self.recorder)
        self.evaluating = False  # whether what is made now is for evaluation alone
        self.flops = call_flops()
        self.made: dict[Any, tuple[Any, JittedFunction]] = {}  # the latest stand-in for a function of the same code

    @patches.unnoticed
    def patch(self, name: str) -> None:
        """Have ``jax.NAME`` return stand-ins."""
        patch = patches.Patch(self.jax, name)
        inner = patch.original

        @functools.wraps(inner)
        def jit(*args: Any, **kwargs: Any) -> Any:
            made = inner(*args, **kwargs)
            mapped = name == "pmap"
            if hasattr(made, "lower"):
                return self._stand_in(patch, made, kwargs, mapped=mapped)
            # Called with options alone, it is a decorator.
            return functools.wraps(made)(lambda function: self._stand_in(patch, made(function), kwargs, mapped=mapped))

        patch.put(jit)

    def patch_compiled(self, owner: Any) -> None:
        """Patch the calls of what ``jit(f).lower(...).compile()`` returns."""
        known: weakref.WeakKeyDictionary[Any, JittedFunction] = weakref.WeakKeyDictionary()
        running: list[JittedFunction] = []

        def before(args: Any, kwargs: Any) -> Any:
            compiled = args[0]
            watch = known.get(compiled)
            if watch is None:
                donates = any(getattr(each, "donated", False) for each in self.leaves(compiled.args_info))
                watch = known[compiled] = JittedFunction(self, weakref.proxy(compiled), donates=donates)
            mark = watch.begin(args[1:], kwargs)
            if mark is not None:
                running.append(watch)
            return mark

        patches.measure(owner, "__call__", before, lambda mark, returned: running.pop().end(mark, returned))

    def _stand_in(self, patch: patches.Patch, function: Any, options: Any, *, mapped: bool) -> Any:
        try:
            donates = any(options.get(name) not in (None, ()) for name in ("donate_argnums", "donate_argnames"))
            codes = jax_programs.codes_of(function)
            watch = self._made_before(codes, function) or JittedFunction(self, function, donates=donates, mapped=mapped)
            made = Jitted(function, patches.measured(patch, function, watch.begin, watch.end))
        except Exception as error:
            patch.fault(error)
            return function
        if codes:
            self.made[codes] = weakref.ref(made), watch
        return made

    def _made_before(self, codes: Any, function: Any) -> JittedFunction | None:
        """Return what is known of the same code where it is jitted anew, as in every turn of a loop."""
        made = self.made.get(codes)
        if made is None or made[0]() is not None or self.evaluating:
            return None
        watch = made[1]
        watch.function = function
        return watch

    def shapes(self, leaves: list[Any], least: int = 2) -> list[Any]:
        """Return shape and type of those of ``leaves`` that are arrays of at ``least`` so many numbers."""
        arrays = [leaf for leaf in leaves if getattr(leaf, "size", 0) >= least]
        return [(leaf.shape, str(leaf.dtype)) for leaf in arrays if hasattr(leaf, "dtype") and hasattr(leaf, "shape")]

    def takes_state(self, given: list[Any]) -> bool:
        """Return whether the arguments of a function have what a step returns."""
        return bool(self.state) and sum(shape in self.state for shape in self.shapes(given, 1)) >= self.arrays

    def trains(self, shapes: list[Any]) -> None:
        """Note that a function of these ``shapes`` makes a step, and which process this is, once a back end runs."""
        if not self.state:
            process.unseen(REASON, "forward", "backward", "update", "comm_exposed", "sync_wait")
        # A state has moments of the weights as well, which an evaluation does not take.
        self.arrays = max(self.arrays, min(FEW, max(len(set(shapes)), len(shapes) // KEPT_OF_EACH)))
        self.state.update(shapes)
        count = self.jax.process_count()
        self.recorder.rank(self.jax.process_index(), count, "jax")

    def multiplies(self, program: Any) -> None:
        """Write in which precision steps multiply, as a further ``program`` of them shows."""
        before, on_processor = dict(self.products), self.jax.default_backend() == "cpu"
        jax_programs.add_products(program, self.products, on_processor=on_processor)
        known = jax_programs.precisions(self.products)
        if self.products == before or not known:
            return
        device = {"device": "cpu", "threads": jax_programs.processor_threads()} if on_processor else {"device": "cuda"}
        line = {"kind": "weights", "step": self.recorder.number, "precisions": known, **device}
        self.recorder.file.write(line, opens=False)

    def count(self, function: Any, arguments: Any, program: Any) -> int:
        """Return the floating-point operations of a call (`jax.stages.Lowered.cost_analysis`), which counts loops once.

        Raises ValueError where a loop of unknown length has products.
        """
        is_compiled = hasattr(function, "cost_analysis")
        if is_compiled and " while(" in function.as_text():
            raise ValueError(jax_programs.UNKNOWN_LOOP)
        more = jax_programs.repeated_products(program)
        cost = (function if is_compiled else function.trace(*arguments[0], **arguments[1]).lower()).cost_analysis()
        # The program is that of all processes together.
        return round((float(cost["flops"]) + more) / int(self.jax.process_count()))


class JittedFunction:
    """What is known of one jitted function: what it is for, and which of its results can be waited for."""

    def __init__(self, functions: JaxFunctions, function: Any, *, donates: bool, mapped: bool = False) -> None:
        self.mapped = mapped  # over devices, which the first dimension of arrays is of
        self.batch: ArgumentAmounts | None = None  # of a call with a gradient
        self.functions = functions
        self.recorder = functions.recorder
        self.function = function
        self.donates = donates
        self.name = str(getattr(function, "__name__", "compiled"))
        self.label = f"{self.name} {next(functions.numbers)}"
        self.role = EVALUATION if functions.evaluating else ""
        self.ends: list[int] = []  # results that show the end of a step, the best first
        self.looks = self.traced = 0
        self.operations: int | str = 0  # floating-point ones of a call, or why they are not known
        self.holds_gradient: bool | None = None
        self.state_at: list[int] = []  # which of its arguments have shapes of the state, a few of them
        self.state: list[Any] = []  # what these were in the call before
        self.again = False  # whether the latest call got the state of the one before

    def begin(self, args: Any, kwargs: Any) -> Any:
        """Begin a call, as what the first one has shown it to be."""
        recorder = self.recorder
        if not recorder.is_mine():
            return self._begin_elsewhere(args, kwargs)
        if self.role == HELPER or recorder.stack or not self.functions.is_eager():
            return None
        if self.role == STEP:
            # One without a gradient, as for each moment of an optimizer, may be called several times in a step.
            helps = self._helps()
            given = [] if helps else self.functions.leaves((args, kwargs))
            self.again = not helps and self._has_the_same_state(given)
            label = f"{self.label}, {next(self.functions.numbers)}" if helps else self.label
            recorder.call_begin(label, again=self.again or helps)
            if self.batch is not None and recorder.sources.latest is None:
                note_amount(recorder, self.batch.of(given))
            return patches.CallMark(STEP, self._traces())
        if self.role == EVALUATION:
            return (EVALUATION, recorder.forward_begin(training=False))
        given = self.functions.leaves((args, kwargs))
        self.looks += 1
        recorder.sights["jit"] = recorder.sights.get("jit", 0) + 1
        if not given or self.looks > MOST_LOOKS:
            self.role = HELPER
            return None
        self.traced = self._traces()
        recorder.enter("compile")
        return patches.CallMark("", (args, kwargs), given, self.functions.shapes(given))

    def _begin_elsewhere(self, args: Any, kwargs: Any) -> Any:
        """Begin a call in another thread, which is the one to record if the call computes a gradient."""
        recorder = self.recorder
        if recorder.begin is not None or self.role or self.holds_gradient is False or not self.functions.is_eager():
            return None
        begin, given = now(), self.functions.leaves((args, kwargs))
        recorder.sights["jit"] = recorder.sights.get("jit", 0) + 1
        return patches.CallMark(begin, (args, kwargs), given, self.functions.shapes(given))

    def _end_elsewhere(self, mark: patches.CallMark) -> None:
        arguments = mark.given[1]
        program = jax_programs.program_of(self.function, arguments)
        self.holds_gradient = jax_programs.holds_gradient(self.function, arguments, program)
        if self.holds_gradient and (timed := first_call_elsewhere(mark.given[0])) is not None:
            self._learn(mark, timed[0], timed[1])

    def end(self, mark: Any, returned: bool) -> None:
        """End it."""
        recorder = self.recorder
        if mark.__class__ is not patches.CallMark:
            recorder.forward_end(mark[1])
        elif mark.given[0] == STEP:
            compiled = self._traces() > mark.given[1]
            timed = recorder.call_end("compile" if compiled else "call", counts=not self._helps())
            self._take_turn()
            self.functions.flops.add(self.operations)
            if timed is not None and returned and self.ends:
                results = self.functions.leaves(mark.result)
                self.functions.waits.add(recorder.number, results[self.ends[0]], timed[0], self)
        elif mark.given[0]:
            if returned:
                self._end_elsewhere(mark)
        else:
            # One that was jitted before under another name is called, not compiled.
            timed = recorder.leave("compile", "call" if 0 < self.traced == self._traces() else "compile")
            if timed is not None and returned:
                self._learn(mark, timed[0], timed[1])

    def _helps(self) -> bool:
        """Return whether it has no gradient, and another function of the step has."""
        return bool(self.functions.trained) and not self.holds_gradient

    def _see(self, kind: str) -> None:
        """Count the call that was seen as one of ``kind``."""
        sights = self.recorder.sights
        sights["jit"] -= 1
        sights[kind] = sights.get(kind, 0) + 1

    def _take_turn(self) -> None:
        """Note whose weights the step has updated: a round of several functions, one of them often, is one step."""
        if self.holds_gradient and not self.again:
            self.recorder.optimizers.append(self.functions.trained.index(self.label))

    def _has_the_same_state(self, given: list[Any]) -> bool:
        """Return whether it gets the very arrays of the call before: gradients are added up, nothing was updated."""
        state = [given[index] for index in self.state_at if index < len(given)]
        same = bool(state) and len(state) == len(self.state)
        same = same and all(one() is other for one, other in zip(self.state, state))
        if not same:
            self.state = [weakref.ref(each) for each in state]
        return same

    def _traces(self) -> int:
        count: Callable[[], int] | None = getattr(self.function, "_cache_size", None)
        return 0 if count is None else count()

    def _places(self, given: list[Any], shapes: list[Any]) -> list[int]:
        """Return where a few of the arrays of ``given`` lie that have ``shapes`` of the state."""
        known = [
            index
            for index, leaf in enumerate(given)
            if isinstance(leaf, self.functions.jax.Array) and (leaf.shape, str(leaf.dtype)) in shapes
        ]
        return known[:: max(1, len(known) // LOOKED_AT)]

    def _learn(self, mark: patches.CallMark, begin: int, end: int) -> None:
        _, arguments, given, shapes = mark.given
        results = self.functions.leaves(mark.result)
        program = jax_programs.program_of(self.function, arguments)
        # flax returns all that a function could have changed.
        passed = jax_programs.passed_on(program, len(results))
        fresh = [leaf for index, leaf in enumerate(results) if index not in passed]
        kept_shapes = jax_programs.common(shapes, self.functions.shapes(fresh))
        same = len(kept_shapes)
        if same < FEW and not (self.donates and same):
            small = jax_programs.common(self.functions.shapes(given, 1), self.functions.shapes(fresh, 1))
            if small and jax_programs.holds_gradient(self.function, arguments, program):
                kept_shapes, same = small, FEW
        trains = same >= FEW or (self.donates and same > 0)
        if trains:
            self.holds_gradient = jax_programs.holds_gradient(self.function, arguments, program)
        if trains and (self.holds_gradient or not jax_programs.is_of_a_library(self.function)):
            self._learn_step(mark.given, kept_shapes, program)
            self.recorder.first_call(self.label, begin, end, counts=not self._helps())
            self._learn_batch(mark.given, fresh, program)
            self._take_turn()
            count = functools.partial(self.functions.count, self.function, arguments, program)
            self.operations = self.functions.flops.count_program(COUNTED, count)
            self.functions.flops.add(self.operations)
            self._learn_ends(given, results)
        elif trains:
            self.role = HELPER
            self._see("jit_library")
        elif self.functions.takes_state(given):
            self.role = EVALUATION
            self.recorder.first_forward(begin, end)
        elif self.functions.state:
            self.role = HELPER
        else:  # without a step yet that it could be compared with
            if self.holds_gradient is None:
                self.holds_gradient = jax_programs.holds_gradient(self.function, arguments, program)
            if self.holds_gradient:
                self._see("jit_gradient")
            return
        self.recorder.file.write({"kind": "function", "name": self.name, "role": self.role}, opens=False)

    def _learn_step(self, given: tuple[Any, ...], kept_shapes: list[Any], program: Any) -> None:
        """Learn what a step is, from the call that showed that it makes one, and say what of it is not known."""
        _, arguments, arrays, _ = given
        self.role = STEP
        if self.holds_gradient:
            self.functions.trained.append(self.label)
        self.state_at = self._places(arrays, kept_shapes)
        self._has_the_same_state(arrays)
        if (times := jax_programs.gradients_in_loop(program)) != 1:
            often = f"{times} times" if times else "as often as it finds"
            process.note(REPEATED.format(name=self.name, often=often))
        kinds = jax_programs.kinds_of(self.functions.jax.tree_util.tree_structure(arguments), arrays)
        for kind, text in OF_STATES.items():
            if kind in kinds:
                process.note(text.format(name=self.name))
        if not self.functions.trained:
            process.note(NO_GRADIENT.format(name=self.name))
        self.functions.trains(kept_shapes)
        self.functions.multiplies(program)

    def _learn_batch(self, given: tuple[Any, ...], fresh: list[Any], program: Any) -> None:
        """Learn which of the arguments hold samples, and note what the call held."""
        _, (args, kwargs), arrays, _ = given
        if not self.holds_gradient:
            return
        arguments = [self.functions.leaves(each) for each in (*args, *(kwargs[name] for name in sorted(kwargs)))]
        places: list[int] | str = SEVERAL
        if jax_programs.gradients_in_loop(program) == 1 and sum(map(len, arguments)) == len(arrays):
            places = find_data(arguments, fresh)
        self.batch = ArgumentAmounts(places, mapped=self.mapped)
        note_amount(self.recorder, self.batch.of(arrays))

    def _learn_ends(self, given: list[Any], results: list[Any]) -> None:
        """Learn which results show the end: a small one of another shape than any argument is not taken over."""
        kept = [(str(getattr(leaf, "shape", "")), str(getattr(leaf, "dtype", ""))) for leaf in given]
        sizes = {index: getattr(leaf, "size", 1 << 40) for index, leaf in enumerate(results)}
        known = [(str(getattr(leaf, "shape", "")), str(getattr(leaf, "dtype", ""))) in kept for leaf in results]
        self.ends = sorted(sizes, key=lambda index: (known[index], sizes[index], -index))


class Jitted:
    """Stands for a jitted function; whatever it does not know it asks of that function."""

    __slots__ = ("__weakref__", "_call", "_function")

    def __init__(self, function: Any, call: Callable[..., Any]) -> None:
        self._function = function
        self._call = call

    @patches.unnoticed
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    # A serialised or copied one is the function itself and knows nothing of us.
    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._function.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return repr(self._function)

    def __hash__(self) -> int:
        return hash(self._function)

    def __eq__(self, other: object) -> bool:
        return bool(self._function == (other._function if type(other) is Jitted else other))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._function)

    @property
    def __wrapped__(self) -> Any:
        return self._function.__wrapped__

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self._function.__doc__
