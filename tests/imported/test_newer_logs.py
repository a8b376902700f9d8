"""Logs as newer and older versions of the libraries write them, beside what a person reads off them."""

import json

import pytest
from logs import LOGS

from steptime.cli.app import run_program


@pytest.fixture
def imported(tmp_path, capsys):
    """Return a function that imports a text, and returns the run and its source."""

    def run(text):
        (tmp_path / "log").write_text(text)
        assert run_program(["import", str(tmp_path / "log"), "-o", str(tmp_path / "out"), "--json"]) == 0
        run = json.loads(capsys.readouterr().out)["attached"]
        return run, run["imported"][0]

    return run


TITAN = "[titan] 2026-07-01 10:00:00,000 - root - INFO - "
TITAN_ENTRY = "loss:  7.00000  grad_norm:  1.0000  memory: 20.10GiB(21.00%)  tps: {}  tflops: 100.10  mfu: N/A\n"
TITAN_LOG = (
    f"{TITAN}Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1\n"
    f"{TITAN}Trainer is initialized with 16384 tokens per DP rank, 65536 tokens per train step, "
    "gradient accumulation steps 1, maximum context length 8192, total steps 1000 (warmup 200)\n"
    + "".join(f"{TITAN}step: {n:2}  " + TITAN_ENTRY.format("8,192") for n in range(5, 60, 5))
)


def test_torchtitan_without_batches_shows_its_step_by_tokens_of_a_step(imported):
    run, _ = imported(TITAN_LOG)
    assert run["world"] == 16
    assert run["step_s"]["value"] == pytest.approx(65536 / (16 * 8192))


def test_validations_of_torchtitan_are_no_steps(imported):
    validation = f"{TITAN}validate step: 57  loss:  7.0000  memory: 20.10GiB(21.00%)  tps: 99,192\n"
    run, _ = imported(TITAN_LOG + validation)
    assert run["step_s"]["value"] == pytest.approx(0.5)
    assert run["step_s"]["high"] < 0.51  # of a rate of 99,192 a step would be 41 ms


def test_nemos_printed_lines_are_means_over_the_steps_since_the_line_before(imported):
    every_tenth = "".join(
        f"Training epoch 0, iteration {n}/999 | lr: 1e-05 | global_batch_size: 32 | global_step: {n} | "
        f"train_step_timing in s: 1.2\n"
        for n in range(9, 120, 10)
    )
    run, _ = imported(every_tenth)
    assert run["step_s"]["value"] == pytest.approx(1.2)
    assert run["spread"] is None


def test_nemos_delta_timing_is_read_and_its_validations_are_not(imported):
    line = "[NeMo I 2025-07-01 10:00:00 exp_manager:430] Step {}: {} in s={}\n"
    steps = [line.format(n, "train_step_timing", 1.2 + 0.01 * (n % 2)) for n in range(12)]
    run, source = imported(
        "".join(steps[:6] + [line.format(n, "validation_step_timing", 9.0) for n in range(3)] + steps[6:])
    )
    assert source["importer"] == "nemo-steps"
    assert run["step_s"]["value"] == pytest.approx(1.205, rel=1e-2)
    assert run["attempts"] == 1


@pytest.mark.parametrize(
    "names", ["fwd bwd bwd_inner bwd_allreduce", "forward backward backward_inner backward_allreduce"]
)
def test_parts_that_deepspeed_times_are_figures_of_steps_and_not_of_micro_steps(names, imported):
    def line(suffix, factor):
        parts = zip(names.split(), (100.0, 200.0, 150.0, 50.0), strict=True)
        own = "".join(f" | {name}{suffix}: {factor * ms:.2f}" for name, ms in parts)
        return f"[Rank 0] time (ms){own} | step{suffix}: 20.00\n"

    entries = LOGS["deepspeed"][0].splitlines(keepends=True)
    run, source = imported(
        "".join(entry + line("_microstep", 1) + line("", 2 + n % 2 / 5) for n, entry in enumerate(entries))
    )
    assert run["step_s"]["value"] == pytest.approx(0.8, rel=2e-3)
    assert source["values"]["forward_s"] == pytest.approx(0.21, rel=1e-2)
    assert source["values"]["backward_s"] == pytest.approx(0.42, rel=1e-2)
    assert source["values"]["backward_allreduce_s"] == pytest.approx(0.105, rel=1e-2)
    assert source["values"]["update_s"] == pytest.approx(0.02)
    assert source["figures"]["forward_s"]


EVALUATED = [
    {"loss": 1.0, "step": 10},
    {"eval_loss": 1.1, "eval_runtime": 2.0, "eval_steps_per_second": 25.0, "step": 10},
    {"eval_valid_loss": 1.1, "eval_valid_runtime": 3.0, "step": 20},
    {"train_runtime": 25.0, "train_steps_per_second": 0.8, "train_samples_per_second": 6.4, "step": 20},
    {"eval_loss": 1.1, "eval_runtime": 2.0, "step": 20},
]


def test_evaluations_within_the_training_are_no_part_of_a_trainers_steps(imported):
    run, source = imported(json.dumps({"global_step": 20, "log_history": EVALUATED}))
    assert run["step_s"]["value"] == pytest.approx((25.0 - 5.0) / 20)
    assert source["figures"]["step_s"] == "(train_runtime - eval_runtime of 2 evaluations) / steps"
    assert source["values"]["samples_per_s"] == 6.4


def test_rates_of_a_trainer_that_ended_early_are_not_used(imported):
    run, source = imported(
        json.dumps({"global_step": 20, "log_history": [{**EVALUATED[3], "train_steps_per_second": 40.0}]})
    )
    assert run["step_s"]["value"] == pytest.approx(25.0 / 20)
    assert "samples_per_s" not in source["values"]
    assert "rates of the Trainer are not used: they are of 1000 steps, and the training has 20" in run["notes"]


def mllog(key, at_ms, samples=None, **entry):
    about = {"lineno": 1, **({} if samples is None else {"samples_count": samples})}
    return f":::MLLOG {json.dumps({'key': key, 'time_ms': at_ms, 'value': None, 'metadata': about, **entry})}\n"


def test_evaluations_that_mlperf_marks_are_no_part_of_its_steps(imported):
    text = mllog("global_batch_size", 0, value=8) + mllog("block_start", 0, 0)
    for n in range(1, 13):
        begin = 700 * n - 300  # 8 steps of 50 ms, an evaluation of 300 ms
        text += mllog("block_stop", begin, 64 * n) + mllog("eval_start", begin, 64 * n)
        text += mllog("eval_stop", begin + 300, 64 * n) + mllog("block_start", begin + 300, 64 * n)
    run, _ = imported(text)
    assert run["step_s"]["value"] == pytest.approx(0.05)


ULTRALYTICS = {
    "old": "        epoch,  train/box_loss,  metrics/mAP_0.5\n            0,             0.1,              0.2\n",
    "new": "epoch,time,train/box_loss\n1,30,1.2\n2,60,1.1\n3,90,1.0\n",
    "classification": "epoch,time,train/loss,metrics/accuracy_top1\n1,30,1.2,0.5\n2,60,1.1,0.6\n3,90,1.0,0.7\n",
    "resumed": "epoch,time,train/box_loss\n1,30,1.2\n2,60,1.1\n3,31,1.0\n4,61,1.0\n",
}


@pytest.mark.parametrize("name", ULTRALYTICS)
def test_ultralytics_shows_the_time_of_an_epoch_where_it_has_one(name, imported):
    run, source = imported(ULTRALYTICS[name])
    assert source["importer"] == "ultralytics"
    assert source["values"].get("epoch_s") == (None if name == "old" else 30.0)
    assert ("has no times" in run["not_attached"]) == (name == "old")


def test_a_table_of_lightning_whose_losses_are_named_as_those_of_ultralytics_is_lightnings(imported):
    rows = "".join(f"0,{n},1.5,{n * 0.3:.1f}\n" for n in range(10, 130, 10))
    run, source = imported("epoch,step,train/box_loss,train/time\n" + rows)
    assert source["importer"] == "lightning"
    assert run["step_s"]["value"] == pytest.approx(0.3)
