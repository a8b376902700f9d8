"""torch: loaders, outermost modules, backward passes, optimizers and checkpoints.

Classes and modules are patched; of the user's objects only parameters carry anything: hooks for three backward
passes, which note when gradients are ready, then on the last of them only.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict

from .. import early_end, patches, process
from ..batch_amount import AskedSizes, BatchReader
from ..library_calls import region_of, requests_of
from ..loader_requests import TrainingSources
from ..optimizer_numbers import OptimizerNumbers
from ..record_file import now
from ..step_form import BACKWARD, FORWARD
from ..usual_steps import UsualSteps
from . import collectives, device_events, graphs
from .dropped_gradients import DroppedGradients
from .forward_inputs import ForwardInputs
from .gradients import Gradients, UpdatesByHand
from .untrained_passes import FAILED, BegunPass, DroppedPasses, failed
from .weights import Weights

if TYPE_CHECKING:
    from ..patches import After, Before
    from ..recorder import Recorder

# The step whose floating-point operations are counted when asked.
COUNTED_STEP = 4
KERNELS = ("CPU", "CUDA", "XPU", "HPU", "MPS", "PrivateUse1")


def install(torch: Any) -> None:
    """Patch ``torch``, which is imported whole."""
    training = TorchTraining(torch)
    for part in (
        training.patch_loaders,
        training.patch_modules,
        training.patch_backward,
        training.patch_optimizers,
        training.patch_checkpoints,
        lambda: collectives.install(torch, training.compiling),
        lambda: device_events.install(torch, training.recorder, training.compiling),
        lambda: graphs.install(training.recorder, training.gradients.sizes),
    ):
        try:
            part()
        except Exception as error:  # noqa: PERF203 - the other parts are seen
            patches.report(f"torch: {getattr(part, '__name__', 'a part')}", error)
    training.recorder.at_step += [training.flops.step_closed, training.weights.step_closed]
    early_end.watch(training.recorder)
    if os.environ.get("STEPTIME_ATTACH_ABLATE"):
        importlib.import_module(".ablation", __package__).install(torch)
    hide_from_dynamo()


def hide_from_dynamo() -> None:
    """Tell Dynamo to compile no code of ours, which it else does with frames that follow a graph break."""
    torch: Any = sys.modules["torch"]
    evaluation: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    skip = getattr(evaluation, "skip_code", None)
    strategy = getattr(evaluation, "set_code_exec_strategy", None)
    if strategy is not None:
        action = evaluation._FrameAction
        skipping = evaluation._FrameExecStrategy(action.SKIP, action.DEFAULT)
        skip = functools.partial(_set, strategy, skipping)
    if skip is None:
        return
    package = patches.__name__.rpartition(".")[0]
    for name, module in list(sys.modules.items()):
        if name.startswith(package + "."):
            for code in patches.code_objects(module):
                skip(code)


def _set(strategy: Any, skipping: Any, code: Any) -> None:
    strategy(code, skipping)


class TorchTraining:
    """The patches of the parts of a training step, and what they know together."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.recorder = process.recorder()
        compiler = getattr(torch, "compiler", None)
        self.compiling: Callable[[], bool] = getattr(compiler, "is_compiling", patches.never)
        self.weights = Weights(torch)
        self.passes = collectives.data_parallel_passes()
        TrainingSources.teachers = True
        self.gradients = Gradients(self.recorder, self.compiling, self.weights)
        self.flops = FlopCount(torch, self.recorder)
        self.dropped = DroppedPasses(self.recorder)
        self.unused = DroppedGradients(torch, self.recorder)
        self.reader, self.sizes = BatchReader(), AskedSizes()
        self.inputs = ForwardInputs(torch, self.recorder, self.reader, self.weights)
        self.usual = self.unused.usual = UsualSteps(self.recorder, self.reader, self.sizes, self.unused)
        self.optimizers = OptimizerNumbers()
        self.evaluates = False  # whether the last forward of a gradient was of a module in evaluation mode
        self.trains_so = False  # whether a backward pass followed such a one

    def measure(self, owner: Any, name: str, before: Before, after: After) -> None:
        """Patch ``owner.name``."""
        patches.measure(owner, name, before, after, self.compiling)

    # Requests

    def patch_loaders(self) -> None:
        """Requests to a DataLoader's iterator, and the making of one."""
        data = importlib.import_module("torch.utils.data.dataloader")
        base, sizes, by_index = data._BaseDataLoaderIter, self.sizes, data._DatasetKind.Map

        held = lambda it: getattr(it, "_dataset", it)  # noqa: E731 - it makes the line fit
        requests_of(base, "__next__", held, self.compiling, read=self.reader.read, asked=sizes.take, usual=self.usual)
        requests_of(data.DataLoader, "__iter__", lambda it: it.dataset, self.compiling, "loader_start")
        patch = patches.Patch(base, "_next_index")  # last: a torch without it loses nothing else
        inner = patch.original

        @patches.unnoticed
        def next_index(loader: Any) -> Any:
            indices = inner(loader)
            if patch.on:
                try:
                    if loader._dataset_kind == by_index:
                        sizes.add(loader, indices, anew=getattr(loader, "_send_idx", None) == 0)
                except Exception as error:
                    patch.fault(error)
            return indices

        patch.put(patches.named_after(inner, next_index))

    # Forward

    def patch_modules(self) -> None:
        """Replace ``Module.__call__``; wrapping it would cost each of a model's modules a frame."""
        torch, compiling = self.torch, self.compiling
        patch = patches.Patch(torch.nn.Module, "__call__")
        inner = patch.original
        busy = [False]
        begin, end = self._usual_forward_begin, self._forward_end
        if getattr(torch.nn.Module, "_wrapped_call_impl", None) is inner:
            # Does what the replaced method does, in as many frames: a warning names its line by counting them.

            def call(self: Any, *args: Any, **kwargs: Any) -> Any:
                mark = None
                if not (busy[0] or compiling() or not patch.on):
                    try:
                        mark = begin(self, args, kwargs)
                    except Exception as error:
                        patch.fault(error)
                compiled = self._compiled_call_impl
                if mark is None:
                    return self._call_impl(*args, **kwargs) if compiled is None else compiled(*args, **kwargs)
                busy[0] = True
                result: Any = FAILED
                try:
                    result = self._call_impl(*args, **kwargs) if compiled is None else compiled(*args, **kwargs)
                    return result
                finally:
                    busy[0] = False
                    try:
                        if mark:
                            end(mark, result)
                    except Exception as error:
                        patch.fault(error)

            patch.put(patches.named_after(inner, call))
        else:
            patches.measure(
                torch.nn.Module,
                "__call__",
                lambda args, kwargs: begin(args[0], args[1:], kwargs) or None,
                lambda mark, _: end(mark, None),
            )

    def _usual_forward_begin(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Begin a forward as `_forward_begin`, or of a usual step, whose mark are these."""
        usual = self.usual
        array = next(iter(args or kwargs.values()), None) if usual.on else None
        if usual.on and self.torch.is_grad_enabled() and usual.forward_begins(module, array):
            if self.passes.wraps:
                self.passes.forward(module, through=True)
            return usual
        mark = self._forward_begin(module, args, kwargs)
        if mark and mark[0] == FORWARD and mark[2] and not self.evaluates:
            through = self.gradients.outermost.get(module, (True, False))[1]
            plain = through == self.passes.wraps and not (self.gradients.passes or self.flops.wanted)
            if usual.begins(module, self.optimizers, alone=plain):
                return usual
        return mark

    def _forward_begin(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Begin a forward; return what its end needs, `()` where it is not measured, or None in another thread."""
        recorder, torch = self.recorder, self.torch
        training = torch.is_grad_enabled()
        gradients = self.gradients
        if not recorder.is_mine() and not (training and module.training and self._adopts(module)):
            return None
        # Recomputation, a module inside of another, or a loader's own: transforms are modules, too.
        if recorder.inside("forward", "nograd", "backward", "input"):
            return ()
        if not training and isinstance(module, torch.fx.GraphModule):  # compiled code, called by its backward pass
            return ()
        trainable = True
        if training:
            known = gradients.outermost.get(module)
            if known is None:
                weight, given = next(module.parameters(), None), next(iter(args or kwargs.values()), None)
                if getattr(weight, "is_meta", False) or None in (getattr(given, "shape", None) or ()):
                    return ()  # it computes nothing: Keras makes a model of arrays without a size
                known = gradients.adopt(module)
            trainable, through = known
            self.passes.forward(module, through=through)
        counted = training
        if training and trainable:
            self.evaluates = not module.training
            training = module.training or self.trains_so
        array = next(iter(args or kwargs.values()), None) if trainable else None
        begun = self.dropped.begin(array) if training and trainable else None
        if begun is None:
            self.dropped.read(array)
        name = recorder.forward_begin(training=training, trainable=trainable, array=array)
        given = self.inputs.given(name, module, args, kwargs) if begun else None
        return name, self.flops.enter("forward") if counted else None, begun, given

    def _adopts(self, module: Any) -> bool:
        """Return whether the calling thread is the one to record: not where it prepares batches by modules."""
        return any(each.requires_grad for each in module.parameters()) and self.recorder.adopt_thread()

    def _forward_end(self, mark: Any, result: Any) -> None:
        usual = self.usual
        if mark is usual:
            if result is not FAILED and usual.end(FORWARD):
                return
            usual.settle()
            mark = FORWARD, None, BegunPass(0, None), None
        name, counting, begun, given = mark
        self.flops.leave(counting)
        self.recorder.forward_end(name)
        if name == "forward" and begun and not self.recorder.stack:
            if result is FAILED:
                failed(self.recorder, backward=False)
            else:
                self.dropped.end(begun, result)
                self.weights.look_into(result)
        if given is not None and result is not FAILED:
            self.inputs.note(given, result)

    # Backward

    def patch_backward(self) -> None:
        """Backward passes, and calls for gradients that no backward pass is around."""
        usual, recorder, flops = self.usual, self.recorder, self.flops
        recorder.at_backward.append(self.gradients.backward_ended)

        def before(args: Any, kwargs: Any) -> Any:
            if usual.on and kwargs.get("inputs") is None and usual.begin(BACKWARD):
                recorder.last_gradient = 0
                return (usual,)
            if not recorder.adopt_thread() or recorder.inside("backward", "input"):
                return None
            self.unused.backward_begins(kwargs, evaluates=self.evaluates)
            self.trains_so = self.trains_so or (self.evaluates and not self.unused.beside)
            self.dropped.backward_begin(args[0] if args else kwargs.get("tensors"))
            recorder.passes.backward_begins(recorder, keeps_graph=_keeps_graph(*args[2:4], **kwargs))
            recorder.backward_begin()
            return (flops.enter("backward"),)

        def after(mark: Any, returned: bool) -> None:
            synchronised, counting = collectives.synchronised(), mark[0]
            if counting is usual:
                if returned and usual.backward_ends(synchronised):
                    return
                counting = usual.settle()
            flops.leave(counting)
            recorder.backward_end(synchronised=synchronised)
            self.unused.backward_ends()
            if not returned and not recorder.stack and not recorder.by_hand:
                failed(recorder, backward=True)

        self.measure(self.torch.autograd, "backward", before, after)

        region_of(self.torch.autograd, "grad", "gradient", self.compiling, not_inside=("backward", "forward", "input"))
        # Without an optimizer, the outermost call for gradients of several weights is the backward pass of a step.
        by_hand = UpdatesByHand(self.torch, recorder)
        self.measure(
            self.torch.autograd,
            "grad",
            lambda args, kwargs: before(args, kwargs) if by_hand.begins(args, kwargs) else None,
            after,
        )

    # Update

    def patch_optimizers(self) -> None:
        """Steps of optimizers, clipping before them, and steps that a GradScaler skips."""
        torch, recorder = self.torch, self.recorder
        optimizer = importlib.import_module("torch.optim.optimizer")
        recorder.by_hand, recorder.compiles = True, self._compiles

        def made(args: Any, kwargs: Any) -> Any:  # noqa: ARG001 - the form of all
            recorder.by_hand = False
            self.unused.made(args[0])

        self.measure(optimizer.Optimizer, "__init__", made, lambda _, __: None)
        self.unused.patch(optimizer, self.compiling)
        self._hook(optimizer.register_optimizer_step_pre_hook, self._update_begin)
        self._hook(optimizer.register_optimizer_step_post_hook, self._update_end)
        amp = torch.amp if hasattr(torch.amp, "GradScaler") else torch.cuda.amp  # the latter before torch 2.3

        def skipped(mark: Any, returned: bool) -> None:  # noqa: ARG001 - the form of all
            if mark and recorder.backwards and not recorder.stepped and recorder.is_mine():
                recorder.flags.add("skipped")
                recorder.updated(now())

        self.measure(amp.GradScaler, "update", lambda args, _: args[0].is_enabled(), skipped)
        clipping = importlib.import_module("torch.nn.utils.clip_grad")
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            region_of(clipping, name, "clip", self.compiling, usual=self.usual)
            if getattr(torch.nn.utils, name, None) is not None:
                setattr(torch.nn.utils, name, getattr(clipping, name))

    @staticmethod
    def _compiles() -> bool:
        """Return whether Dynamo has compiled something, by its own counters."""
        dynamo = sys.modules.get("torch._dynamo.utils")
        return dynamo is not None and bool(getattr(dynamo, "counters", {"stats": 1}).get("stats"))

    def _hook(self, register: Callable[[Any], Any], act: Callable[[Any], None]) -> None:
        handle: list[Any] = []
        compiling = self.compiling

        def hook(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001 - torch's own form
            if compiling() or not handle:
                return
            try:
                act(optimizer)
            except Exception as error:
                if patches.raised_by_signal_handler(error):
                    raise
                handle.pop().remove()
                patches.report(f"optimizers: {act.__name__}", error)

        handle.append(register(hook))

    def _update_begin(self, optimizer: Any) -> None:
        usual = self.usual
        if usual.on and usual.update_begins(optimizer):
            return
        inside = self.recorder.inside("input", "collective")
        if self.recorder.is_mine() and not inside and not self._makes_state(optimizer):
            defined_in = type(optimizer).step.__module__
            own = defined_in.startswith("torch.optim.")
            if not self.recorder.inside("update"):
                self.trains_so = self.trains_so or (self.evaluates and self.unused.beside)
                self.unused.update_begins(again=not own or defined_in == "torch.optim.lbfgs")
            self.recorder.update_begin(closure_first=own)  # as every optimizer of torch calls it

    def _update_end(self, optimizer: Any) -> None:
        usual = self.usual
        if usual.on and usual.update_ends(optimizer):
            return
        if self.recorder.is_mine():
            self.unused.take_back()  # an optimizer may put gradients in place in its own step
            self.recorder.update_end(self.optimizers.of(optimizer))

    def _makes_state(self, optimizer: Any) -> bool:
        """Return whether an update has no pass before it and no rate: so the state of a checkpoint is made to load."""
        recorder = self.recorder
        if recorder.forwards or recorder.micro_steps or recorder.calls or recorder.stack:
            return False
        return all(not group.get("lr", 1.0) for group in optimizer.param_groups)

    # Checkpoints

    def patch_checkpoints(self) -> None:
        """`torch.save`."""
        region_of(self.torch, "save", "save", self.compiling)


def _keeps_graph(
    retained: Any = None, created: Any = None, retain_graph: Any = None, create_graph: Any = None, **_: Any
) -> bool:
    return retained is True or created is True or retain_graph is True or create_graph is True


class Formulas(Dict[Any, Any]):
    """How operators are counted, by which torch's mode decides what to decompose: none that has a kernel of its own.

    The parts of one round otherwise than its kernel, as the gradient of SiLU does.
    """

    def __contains__(self, operator: Any) -> bool:
        return dict.__contains__(self, operator) or _has_kernel(operator)


def _has_kernel(operator: Any) -> bool:
    torch = sys.modules["torch"]
    if not isinstance(operator, torch._ops.OpOverload):
        return False
    has: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(operator.name(), key) for key in KERNELS)


class FlopCount:
    """Counts inside each outermost forward and backward of one step, so that no mode of the user's is crossed."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self.torch = torch
        self.recorder = recorder
        self.wanted = bool(os.environ.get("STEPTIME_ATTACH_FLOPS"))
        self.begin_again()

    def begin_again(self) -> None:
        """Forget what was counted."""
        self.sums: dict[str, int] = {}
        self.operators: dict[str, int] = {}

    def enter(self, phase: str) -> Any:
        """Begin to count in ``phase`` if this is the step; return what ``leave`` needs."""
        if not self.wanted or self.recorder.number != COUNTED_STEP:
            return None
        mode = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
        mode.flop_registry = Formulas(getattr(mode, "flop_registry", ()))
        mode.__enter__()
        return phase, mode

    def leave(self, counting: Any) -> None:
        """End what ``enter`` began."""
        if counting is None:
            return
        phase, mode = counting
        mode.__exit__(None, None, None)
        self.sums[phase] = self.sums.get(phase, 0) + mode.get_total_flops()
        for operator, count in mode.get_flop_counts().get("Global", {}).items():
            self.operators[str(operator)] = self.operators.get(str(operator), 0) + count

    def step_closed(self, number: int) -> None:
        """Write the line once the step is over."""
        if not self.wanted or number <= COUNTED_STEP:
            return
        self.wanted = False
        self.recorder.file.write({"kind": "flops", "step": COUNTED_STEP, **self.sums, "operators": self.operators})
