"""Columns that state what a stack does, for stacks that nothing is declared of, groups of shards, and accumulation."""

from dataclasses import replace

import numpy as np
import pytest
from tables import COLUMNS, curve, row, write

from steptime.curves.curve import EvidenceError
from steptime.curves.facts import facts_of
from steptime.curves.posterior import Sampling, predict
from steptime.curves.shape import INDEX, expert_priors, joint_prior, relative_times
from steptime.curves.table import read_curves

ON = {"workers_per_host": "4", "framework": "my own trainer", "inter_host_gbps": "10", "transport": "tcp"}
SECONDS = dict.fromkeys((1, 2, 4, 8, 16, 32, 64), 0.3)
FURTHER = ("stack", "parameters", "exchange", "messages", "value_bytes", "sharded_over", "accumulation")


def stated(folder, seconds=SECONDS, holdout=(), **columns):
    """Return a curve of a stack that nothing is declared of, with further columns."""
    rows = [row(w, t, "holdout" if w in holdout else "fit", **{**ON, **columns}) for w, t in seconds.items()]
    return read_curves(write(folder, rows, (*COLUMNS, *FURTHER)))[0]


def between_hosts(one, workers):
    """Return what the exchange adds to a step of ``workers``, of one second of computing, where it hides nothing.

    Nothing else that the model knows is in the way: the other parameters are small beyond notice.
    """
    silent = {"jump", "contention", "crowding", "inside", "host_jump", "host_doubling", "latency", "chopping"}
    values = joint_prior(expert_priors()).mean[None].copy()
    for name in silent:
        values[0, INDEX[name]] = np.log(1e-9)
    values[0, INDEX["flat"]] = 20.0
    return float(relative_times(one, np.array([float(workers)]), np.array([np.nan]), 1.0, values)[0, 0]) - 1.0


def test_a_stated_exchange_stands_for_a_declared_stack(tmp_path):
    own = facts_of(stated(tmp_path, exchange="after_backward", messages="one", value_bytes="4").setup)
    assert own == facts_of(curve(tmp_path, SECONDS, **{**ON, "framework": "MirroredStrategy"}).setup)


def test_a_column_wins_against_what_is_declared(tmp_path):
    found = facts_of(stated(tmp_path, stack="tensorflow_mirrored", exchange="during_backward").setup)
    assert found.overlaps
    assert found.messages == 1


@pytest.mark.parametrize(("precision", "value_bytes", "half"), [("fp32", "2", 1.0), ("amp_fp16", "4", 0.0)])
def test_the_width_of_values_may_differ_from_the_precision(tmp_path, precision, value_bytes, half):
    assert facts_of(stated(tmp_path, precision=precision, value_bytes=value_bytes).setup).half_bytes == half


AFTER = {"exchange": "after_backward", "strategy": "fsdp"}


@pytest.mark.parametrize(
    ("sharded_over", "passes"),
    [
        ("64", 3 * 63 / 64),  # two gathers and a scatter of all weights, past every worker
        ("4", 2 * 15 / 16),  # within hosts, of which 16 reduce their gradients
        ("1", 2 * 15 / 16),  # nothing is split
        ("8", 3 * 7 / 8 + 4 / 8 * 2 * 7 / 8),  # over pairs of hosts, of which eight reduce the half that each holds
    ],
)
def test_groups_of_shards_send_what_they_must_between_hosts(tmp_path, sharded_over, passes):
    """Of 64 workers on 16 hosts, against an all-reduce past every worker."""
    whole = between_hosts(stated(tmp_path, exchange="after_backward"), 64)
    found = between_hosts(stated(tmp_path, sharded_over=sharded_over, **AFTER), 64)
    assert found / whole == pytest.approx(passes / (2 * 63 / 64), rel=1e-6)


def test_each_further_backward_pass_gathers_split_weights_again(tmp_path):
    once, thrice = (
        between_hosts(stated(tmp_path, sharded_over="64", accumulation=count, **AFTER), 64) for count in ("1", "3")
    )
    assert thrice / once == pytest.approx(7 / 3, rel=1e-6)


def test_accumulation_leaves_the_last_backward_pass_alone_to_hide_behind(tmp_path):
    """An exchange of more than its computing: what one pass of eight cannot hide is waited for."""
    columns = {"workload": "other", "parameters": "100000000", "exchange": "during_backward"}
    once, often = (between_hosts(stated(tmp_path, accumulation=count, **columns), 64) for count in ("1", "8"))
    assert often - once == pytest.approx(0.66 * (1 - 1 / 8), rel=1e-2)


def test_the_truth_lies_in_the_interval_where_accumulation_is_stated_and_above_it_where_not(tmp_path):
    """A planted curve, measured inside one host and asked for at 16: with 16 backward passes little hides."""
    columns = {"workload": "other", "parameters": "30000000", "exchange": "during_backward"}
    planted = stated(tmp_path, holdout={8, 16, 32, 64}, accumulation="16", **columns)
    usual = joint_prior(expert_priors()).mean[None].copy()
    usual[0, INDEX["hidden"]] = 5.0
    workers = np.array([1.0, 2.0, 4.0, 16.0])
    seconds = 0.3 * relative_times(planted, workers, np.full(4, np.nan), 0.3, usual)[0]
    measured = tuple(replace(point, step_time=float(s)) for point, s in zip(planted.fit, seconds[:3], strict=True))
    told = replace(planted, fit=measured)
    untold = replace(told, setup=replace(told.setup, accumulation=1))
    (right,), (wrong,) = (
        predict(each, [(16, None)], expert_priors(), Sampling(log_samples=11)) for each in (told, untold)
    )
    assert right.low <= seconds[3] <= right.high
    assert abs(np.log(right.value / seconds[3])) < abs(np.log(wrong.value / seconds[3]))
    assert wrong.value < seconds[3]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"exchange": "sometimes"}, r"unknown exchange 'sometimes'.*after_backward"),
        ({"messages": "many"}, r"unknown messages 'many'.*buckets"),
        ({"value_bytes": "half"}, r"value_bytes is 'half'; write a whole number"),
        ({"accumulation": "0"}, r"accumulation is 0; it must be at least 1"),
        (
            {"sharded_over": "8"},
            r"sharded_over is 8, but allreduce does not split weights; .* the strategy fsdp or zero3",
        ),
    ],
)
def test_a_wrong_value_is_named_with_the_choices(tmp_path, columns, message):
    with pytest.raises(EvidenceError, match=message):
        stated(tmp_path, **columns)
