"""Guards that failed, and so had torch.compile work again, are named."""

import pytest
from stored_processes import ddp_steps, found_in, process_lines, sentences_of, write

GUARD = "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5"


def run_with(folder, **graphs):
    line = {"kind": "graphs", "frames": 5, "operations": 9, "graphs": 5, "breaks": 0, "weights": 2, **graphs}
    return found_in(write(folder, process_lines(0, 1, ddp_steps(0, lambda _: [0.0]), lines=[line])))


@pytest.mark.parametrize(("count", "took_ms"), [(4, 1), (1, 400), (20, 3000)])
def test_a_failed_guard_is_named_with_what_it_took(tmp_path, count, took_ms):
    graphs = {"recompilations": count, "recompile_ns": took_ms * 1_000_000, "guards": [GUARD, "another"]}
    sentence = sentences_of(run_with(tmp_path, **graphs))["recompilations"]
    assert f"compiled again {count} time" in sentence
    assert f"since a guard failed: {GUARD} (and 1 more)" in sentence


@pytest.mark.parametrize(
    "graphs", [{}, {"recompilations": 1, "recompile_ns": 1_000_000, "guards": [GUARD]}], ids=["none", "one short one"]
)
def test_other_compilations_are_not_named(tmp_path, graphs):
    assert "recompilations" not in sentences_of(run_with(tmp_path, **graphs))
