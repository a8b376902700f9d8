"""FLOP of a step: counted, else by the rule of six, else not known."""

import pytest
from stored_processes import ddp_steps, found_in, process_lines, write

from steptime.report.attached import run_notes

ELEMENTS, TOKENS = 1_000_000, 512


def run_with(folder, ranks=1, counted=False, tokens=TOKENS, **weights):
    line = {"kind": "weights", "step": 1, "parameters": 9, "attention": True, "elements": ELEMENTS, **weights}
    flops = [{"kind": "flops", "step": 4, "forward": 1000, "backward": 2000}] if counted else []
    lines = []
    for rank in range(ranks):
        steps = ddp_steps(rank, lambda _: [0.0] * ranks)
        if tokens:
            steps = [{**step, "samples": 4, "tokens": tokens} for step in steps]
        lines.append(process_lines(rank, ranks, steps, lines=[line, *flops]))
    return found_in(write(folder, *lines))


@pytest.mark.parametrize(("ranks", "weights"), [(1, {}), (2, {"data_parallel": 1})], ids=["alone", "DDP"])
def test_a_transformer_has_six_for_each_token_and_parameter(tmp_path, ranks, weights):
    run = run_with(tmp_path, ranks, **weights)
    assert (run.flops, run.flops_by) == (6 * ELEMENTS * TOKENS, "6 N")
    assert any("by 6 for each token and parameter" in line for line in run_notes(run))


def test_counted_operations_come_first(tmp_path):
    run = run_with(tmp_path, counted=True)
    assert (run.flops, run.flops_by) == (3000, "counted")


@pytest.mark.parametrize(
    ("ranks", "change"),
    [(1, {"attention": False}), (1, {"elements": 0}), (1, {"tokens": 0}), (2, {})],
    ids=["another network", "frozen or in pieces", "no text", "ranks without DDP"],
)
def test_elsewhere_it_is_not_known(tmp_path, ranks, change):
    run = run_with(tmp_path, ranks, **change)
    assert (run.flops, run.flops_by) == (None, None)
