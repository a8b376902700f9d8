"""The work of a transformer that a table describes: its tokens, its FLOP, and their share of what devices promise.

Each value that multiplies costs a token six FLOP, two of the forward pass and four of the backward pass (J. Kaplan et
al., *Scaling Laws for Neural Language Models*, 2020); attention itself is left out, so that a share of the peak is at
least what is said. Of a mixture of experts a token meets the active values alone, while gradients of all travel. The
peak is that of the data sheet of the accelerator, at the precision of the table.
"""

from dataclasses import dataclass

from steptime.catalog.accelerators import data_sheet_flop_per_s
from steptime.curves.curve import Setup
from steptime.curves.facts import gradient_bytes, workload_of
from steptime.results.json_form import Interval

_FLOP_OF_A_VALUE = 6
_MIXED = "amp_"
"""How names of precisions begin that keep weights in four bytes."""
_SAME = 1.05
"""Clocks may be above those of data sheets by this factor."""


@dataclass(frozen=True)
class TransformerWork:
    """What all workers compute in a second; None of what the table does not tell."""

    tokens_per_s: Interval
    flop_per_s_per_device: Interval | None
    mfu: Interval | None
    """Share of the peak, of each device."""


def transformer_work(setup: Setup, workers: int, step_s: Interval[float, float]) -> TransformerWork | None:
    """Return what a step of so many workers computes; None if tokens or the batch are not known."""
    batch = setup.batch_per_worker
    whole = setup.global_batch if setup.one_batch else None if batch is None else batch * workers
    if setup.tokens_per_sample is None or whole is None:
        return None
    tokens = float(whole * setup.tokens_per_sample)
    values, peak = _multiplying(setup), _peak(setup)
    flop = None if values is None else _FLOP_OF_A_VALUE * values * tokens / (workers * setup.tensor_parallel)
    return TransformerWork(
        tokens_per_s=_in_a_second(tokens, step_s),
        flop_per_s_per_device=None if flop is None else _in_a_second(flop, step_s),
        mfu=None if flop is None or peak is None else _in_a_second(flop / peak, step_s),
    )


def wrong_work(setup: Setup, seconds: float) -> tuple[str, str] | None:
    """Return the column of a row that contradicts others about what is computed, and how; None if none does."""
    active, known = setup.active_parameters, _trainable(setup)
    if active is not None and known is not None and active > known:
        of = "parameters" if setup.parameters is not None else f"the workload {workload_of(setup)}"
        return "active_parameters", f"is {active:,}, more than the {known:,} of {of}; a token meets at most all of them"
    if setup.tokens_per_sample is None or setup.batch_per_worker is None or setup.one_batch:
        return None
    work = transformer_work(setup, 1, Interval(seconds, seconds, seconds))
    peak = _peak(setup)
    if work is None or work.mfu is None or work.mfu.value <= _SAME or peak is None:
        return None
    return "tokens_per_sample", (
        f"is {setup.tokens_per_sample:,}, with which each device computes {work.mfu.value * peak:.3g} FLOP/s, "
        f"{work.mfu.value:.3g} times what an {setup.accelerator} has at {setup.precision}; correct it, the batch, "
        "parameters or tensor_parallel"
    )


def _trainable(setup: Setup) -> int | None:
    return gradient_bytes(workload_of(setup), 1) if setup.parameters is None else setup.parameters


def _multiplying(setup: Setup) -> int | None:
    return _trainable(setup) if setup.active_parameters is None else setup.active_parameters


def _peak(setup: Setup) -> float | None:
    return data_sheet_flop_per_s(setup.accelerator, setup.precision.removeprefix(_MIXED))


def _in_a_second(amount: float, step_s: Interval[float, float]) -> Interval:
    return Interval(amount / step_s.value, amount / step_s.high, amount / step_s.low)
