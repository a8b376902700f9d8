"""FLOP of a step: counted, else by the rule of six, else not known; and MFU by a peak, or why there is none."""

import pytest
from stored_processes import COMMAND, ddp_steps, found_in, process_lines, write

from steptime.attached.step_flops import settings_of_files
from steptime.attached.summary import attached_run
from steptime.report.attached import run_notes
from steptime.results.peaks import PEAKS, Peak, StoredPeaks
from steptime.results.store import Store

ELEMENTS, TOKENS = 1_000_000, 512


HEADER = {
    "command": ["python", "train.py"],
    "started_at": "2026-01-01T00:00:00+00:00",
    "boot": "boot-0",
    "begin_ns": COMMAND,
    "wall_minus_monotonic_ns": 0,
}
H100, DATA_SHEET_BF16 = "0: NVIDIA H100 80GB HBM3", 989.5e12


def run_with(folder, ranks=1, *, counted=False, tokens=TOKENS, gpu=None, **weights):
    targets = weights.pop("targets", None)
    of_rank_1 = weights.pop("of_rank_1", {})
    line = {"kind": "weights", "step": 1, "parameters": 9, "attention": True, "elements": ELEMENTS, **weights}
    flops = [{"kind": "flops", "step": 4, "forward": 1000, "backward": 2000}] if counted else []
    lines = []
    for rank in range(ranks):
        steps = ddp_steps(rank, lambda _: [0.0] * ranks)
        if tokens:
            steps = [{**step, "samples": 4, "tokens": tokens, "targets": targets} for step in steps]
        device = [{"kind": "device", "step": 1, "name": gpu}] if gpu else []
        own = {**line, **of_rank_1} if rank else line
        lines.append(process_lines(rank, ranks, steps, lines=[own, *flops, *device]))
    return found_in(write(folder, *lines))


def sentence_of(run):
    return next((line for line in run_notes(run) if "computes" in line), "")


@pytest.mark.parametrize(("ranks", "weights"), [(1, {}), (2, {"data_parallel": 1})], ids=["alone", "DDP"])
def test_a_transformer_has_six_for_each_token_and_parameter(tmp_path, ranks, weights):
    run = run_with(tmp_path, ranks, **weights)
    assert (run.flops, run.flops_by) == (6 * ELEMENTS * TOKENS, "6 N")
    assert "(6 for each token and parameter, without attention's own)" in sentence_of(run)


def test_counted_operations_come_first(tmp_path):
    run = run_with(tmp_path, counted=True)
    assert (run.flops, run.flops_by) == (3000, "counted")
    assert "(counted)" in sentence_of(run)


@pytest.mark.parametrize(
    ("ranks", "change", "reason"),
    [
        (1, {"attention": False}, "no attention was seen"),
        (1, {"elements": 0}, "parameters are not whole on each rank"),
        (1, {"elements": 0, "frozen": True}, "some parameters are not trained"),
        (1, {"elements": 0, "routed": True}, "a token meets some of the weights alone, those of its experts"),
        (1, {"targets": 8}, "batches hold two texts of different lengths"),
        (1, {"tokens": 0}, "tokens of a step are not known"),
        (2, {}, "parameters are not whole on each rank"),
    ],
    ids=["another network", "in pieces", "frozen", "experts", "two texts", "no text", "ranks without DDP"],
)
def test_elsewhere_it_is_not_known_and_why_is(tmp_path, ranks, change, reason):
    run = run_with(tmp_path, ranks, **change)
    assert (run.flops, run.flops_by, run.arithmetic.flop_per_s.value, run.arithmetic.mfu.value) == (None,) * 4
    assert reason in run.arithmetic.reason
    assert "attach --flops" in run.arithmetic.reason
    assert not sentence_of(run)
    without = f"MFU is not known: {run.arithmetic.reason}."
    assert (without in list(run_notes(run))) == (change.get("tokens") != 0)


def test_flop_per_s_are_those_of_a_rank_in_its_steps(tmp_path):
    run = run_with(tmp_path, 2, data_parallel=1)
    assert run.arithmetic.flop_per_s.value == pytest.approx(run.flops / run.step_s.value)


def test_the_peak_of_a_device_is_of_its_data_sheet_in_the_precision_of_its_products(tmp_path):
    run = run_with(tmp_path, gpu=H100, device="cuda", precisions=["bf16"])
    known = run.arithmetic
    assert (known.peak_flop_per_s.value, known.peak_source, known.precision) == (DATA_SHEET_BF16, "data sheet", "bf16")
    assert known.mfu.value == pytest.approx(known.flop_per_s.value / DATA_SHEET_BF16)
    assert known.reason is None
    assert sentence_of(run).endswith("of the 990 TFLOP/s of the data sheet in bf16.")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "the precision of its products is not on record"),
        ({"device": "cuda", "precisions": ["fp32", "tf32"]}, "its products are in fp32 and tf32, in shares that are"),
        ({"device": "cuda", "precisions": ["fp64"]}, "the peak of this device in fp64 is in no data sheet here"),
        (
            {"device": "cuda", "precisions": ["bf16"], "gpu": "0: Own Chip"},
            "in no data sheet here, and was not measured",
        ),
        ({"device": "cpu", "precisions": ["fp32"], "threads": 2}, "was not measured: steptime peak DIR"),
    ],
    ids=["older record", "convolutions", "other precision", "unknown device", "processor"],
)
def test_without_a_peak_there_are_flop_per_s_alone_and_the_reason(tmp_path, change, reason):
    run = run_with(tmp_path, **{"gpu": H100, **change})
    assert run.arithmetic.flop_per_s.value > 0
    assert run.arithmetic.mfu.value is None
    assert reason in run.arithmetic.reason
    assert "MFU is not known" in sentence_of(run)


def test_ranks_of_other_precisions_have_no_mfu(tmp_path):
    same = {"data_parallel": 1, "device": "cuda", "precisions": ["bf16"]}
    run = run_with(tmp_path, 2, gpu=H100, of_rank_1={"precisions": ["fp32"]}, **same)
    assert run.arithmetic.reason == "ranks differ in precision or device"


def test_a_peak_of_as_many_threads_measured_for_the_folder_counts(tmp_path):
    store = Store.create(tmp_path / "results", study_text="", study_json={"name": "own script"})
    run_with(store.path, device="cpu", precisions=["fp32"], threads=2)
    store.put("attached", HEADER)
    assert settings_of_files(store.attached()[1]) == [("cpu", "fp32", 2)]
    peaks = [
        Peak(device="cpu", precision="fp32", threads=threads, library="torch", version="2", size=64, flop_per_s=[rate])
        for threads, rate in ((1, 1e12), (2, 2e12))
    ]
    store.put(PEAKS, StoredPeaks(peaks=peaks).model_dump(mode="json"))
    run = attached_run(*store.attached())
    assert (run.arithmetic.peak_flop_per_s.value, run.arithmetic.peak_source) == (2e12, "measured")
    assert run.arithmetic.mfu.value == pytest.approx(run.arithmetic.flop_per_s.value / 2e12)
