"""Text logs of trainings become results folders that other verbs read."""

import gzip
import json

import pytest
from logs import LOGS, MEGATRON, WITHOUT_STEPS, megatron

from steptime.cli.app import run_program
from steptime.errors import FileError
from steptime.imported.log_forms import LOG_FORMS
from steptime.imported.source import ReadLimits, open_source, watched
from steptime.importers import importers_of


@pytest.fixture
def imported(tmp_path, capsys):
    """Return a function that imports texts by name, and returns what JSON is printed of the folder's report."""

    def run(**texts):
        paths = []
        for name, text in texts.items():
            paths.append(tmp_path / name)
            paths[-1].write_bytes(text if isinstance(text, bytes) else text.encode())
        assert run_program(["import", *map(str, paths), "-o", str(tmp_path / "out"), "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert run_program(["report", str(tmp_path / "out"), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)["attached"]
        assert report == printed["attached"], "the folder reads as what was imported"
        return report

    return run


@pytest.mark.parametrize("form", LOGS)
def test_a_log_shows_the_step_that_it_means(form, imported):
    text, seconds = LOGS[form]
    report = imported(log=text)
    assert report["imported"][0]["importer"] == form
    assert report["step_s"]["value"] == pytest.approx(seconds, rel=2e-3)
    assert report["imported"][0]["figures"]["step_s"]


@pytest.mark.parametrize("form", WITHOUT_STEPS)
def test_a_log_without_times_of_steps_has_null_and_the_reason(form, imported):
    report = imported(log=WITHOUT_STEPS[form])
    assert report["imported"][0]["importer"] == form
    assert report["step_s"]["value"] is None
    assert report["not_attached"] == report["imported"][0]["unknown"]["step_s"]


@pytest.mark.parametrize("form", [form for form in importers_of("run") if form in {*LOG_FORMS, "mlperf", "lightning"}])
def test_every_form_of_logs_has_a_sample(form):
    assert form in {**LOGS, **WITHOUT_STEPS}


@pytest.mark.parametrize(
    ("form", "workers"),
    [("megatron", 16), ("deepspeed", 8), ("torchtitan", 8), ("nemo", 8), ("horovod-synthetic", 4), ("lightning", 0),
     ("tf-cnn-benchmarks", 4)],
)  # fmt: skip
def test_workers_are_what_the_log_has_or_unknown(form, workers, imported):
    report = imported(log=LOGS[form][0])
    assert report["world"] == workers
    assert ("workers" in report["imported"][0]["unknown"]) == (workers == 0)


def test_means_over_steps_show_no_quantiles_of_steps(imported):
    assert imported(log=MEGATRON)["spread"] is None


def test_single_steps_show_quantiles(imported):
    assert imported(log=LOGS["nemo"][0])["spread"]["p90_s"] > 0


def test_a_packed_log_reads_as_the_log(imported):
    assert imported(log=gzip.compress(MEGATRON.encode()))["step_s"]["value"] == pytest.approx(0.501, rel=2e-3)


def test_steps_that_begin_again_are_a_restart(imported):
    report = imported(log=MEGATRON + MEGATRON)
    assert report["attempts"] == 2


def test_the_parts_of_a_step_that_a_log_does_not_have_are_null_with_the_reason(imported):
    parts = {part["name"]: part for part in imported(log=MEGATRON)["parts"]}
    for name in ("input_wait", "forward", "backward", "comm_exposed", "sync_wait", "update"):
        assert parts[name]["time_s"]["value"] is None
        assert parts[name]["reason"]


@pytest.mark.parametrize("name", ["of-{}.log", "of-{}/train.log"], ids=["names", "folders"])
def test_logs_of_several_sizes_make_a_curve(name, tmp_path):
    paths = []
    for workers, ms in [(8, 500.0), (16, 510.0), (32, 520.0), (64, 530.0)]:
        paths.append(tmp_path / name.format(workers))
        paths[-1].parent.mkdir(exist_ok=True)
        paths[-1].write_text(megatron(workers, ms))
    assert run_program(["import", *map(str, paths), "-o", str(tmp_path / "out")]) == 0
    rows = [row.split(",") for row in (tmp_path / "out" / "curve.csv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["workers", "8", "16", "32", "64"]
    assert [row[2] for row in rows[1:]] == ["4"] * 4
    assert [float(row[1]) for row in rows[1:]] == pytest.approx([0.501, 0.511, 0.521, 0.531], rel=3e-3)


def test_eight_logs_of_a_curve_are_forecast_to_256_workers_with_an_interval_that_holds_the_truth(tmp_path, capsys):
    def step_ms(workers: int) -> float:
        return 400.0 + 40.0 * (workers - 1) / workers + 1.5 * workers.bit_length()  # a ring, and its latency

    paths = []
    for workers in (2**power for power in range(8)):
        paths.append(tmp_path / f"of-{workers}.log")
        paths[-1].write_text(megatron(workers, step_ms(workers)))
    assert run_program(["import", *map(str, paths), "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert run_program(["predict", "--curve", str(tmp_path / "out" / "curve.csv"), "--workers", "256", "--json"]) == 0
    [curve] = json.loads(capsys.readouterr().out)["curves"]
    forecast = curve["predictions"][0]["step_time_s"]
    assert forecast["low"] < step_ms(256) * 1e-3 < forecast["high"]
    assert forecast["high"] < 1.5 * forecast["low"]


def test_logs_with_one_batch_for_all_workers_make_a_curve_of_strong_scaling(tmp_path, capsys):
    paths = []
    for workers in (8, 16, 32):
        paths.append(tmp_path / f"of-{workers}.log")
        paths[-1].write_text(megatron(workers, 4000.0 / workers, batch=64))
    assert run_program(["import", *map(str, paths), "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    arguments = ["predict", "--curve", str(tmp_path / "out" / "curve.csv"), "--json", "--workers"]
    assert run_program([*arguments, "64"]) == 0
    [curve] = json.loads(capsys.readouterr().out)["curves"]
    assert curve["predictions"][0]["step_time_s"]["low"] < 4.0 / 32
    assert run_program([*arguments, "256"]) == 2
    assert "256 workers cannot share a batch of 64 samples" in capsys.readouterr().err


def test_two_imported_logs_are_compared(tmp_path, capsys):
    for name, ms in (("a", 500.0), ("b", 600.0)):
        (tmp_path / f"{name}.log").write_text(megatron(16, ms))
        assert run_program(["import", str(tmp_path / f"{name}.log"), "-o", str(tmp_path / name)]) == 0
    assert run_program(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    told = capsys.readouterr().out
    assert "+20.0 %" in told
    assert "a was measured at unknown times" in " ".join(told.split())


def test_a_dry_run_names_the_form_and_writes_nothing(tmp_path, capsys):
    (tmp_path / "log").write_text(MEGATRON)
    assert run_program(["import", str(tmp_path / "log"), "-o", str(tmp_path / "out"), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["importer"] == "megatron"
    assert not (tmp_path / "out").exists()


def test_a_file_of_no_known_form_is_refused_with_the_forms(tmp_path, capsys):
    (tmp_path / "log").write_text("step one took long\n")
    assert run_program(["import", str(tmp_path / "log"), "-o", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert all(name in told for name in importers_of("run"))
    assert not (tmp_path / "out").exists()


def test_a_file_of_another_kind_is_named_with_the_command_that_takes_it(tmp_path, capsys):
    (tmp_path / "curve.csv").write_text("workers,step_time_s\n1,0.12\n2,0.131\n")
    assert run_program(["import", str(tmp_path / "curve.csv"), "-o", str(tmp_path / "out")]) == 2
    assert "steptime predict --curve" in capsys.readouterr().err


BROKEN = {
    "cut gzip": (gzip.compress(MEGATRON.encode())[:60], "has no end"),
    "damaged gzip": (gzip.compress(MEGATRON.encode())[:-8] + b"\0" * 8, "is damaged"),
    "deep JSON": (b'{"log_history": ' + b"[" * 5000, "not JSON"),
    "huge number": (MEGATRON.replace("(ms): 50", "(ms): 9e99").encode(), ""),
    "a list": (b'[{"train_runtime": 1}]', "of no form"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_hostile_file_ends_in_a_sentence(name, tmp_path, capsys):
    data, sentence = BROKEN[name]
    (tmp_path / "log").write_bytes(data)
    code = run_program(["import", str(tmp_path / "log"), "-o", str(tmp_path / "out")])
    told = capsys.readouterr()
    assert code == (2 if sentence else 0)
    assert sentence in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [(ReadLimits(line=1000), "the line is longer than"), (ReadLimits(file=5000), "holds more than")],
)
def test_what_is_read_at_once_is_limited(limits, sentence, tmp_path):
    (tmp_path / "zeros.gz").write_bytes(gzip.compress(b"\0" * 20_000))
    with open_source(tmp_path / "zeros.gz", limits) as source, pytest.raises(FileError, match=sentence):
        list(source.lines())


def test_a_log_of_one_rank_asks_for_no_records_of_others(tmp_path, capsys):
    (tmp_path / "log").write_text(MEGATRON)
    assert run_program(["import", str(tmp_path / "log"), "-o", str(tmp_path / "out")]) == 0

    printed = "".join(capsys.readouterr())

    assert "1 of 16 ranks on record" in printed
    assert "what attach wrote" not in printed


def test_a_fit_of_several_trainings_names_them_and_which_one_its_refusal_is_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, workers in (("a", 16), ("b", 32)):
        (tmp_path / f"{name}.log").write_text(megatron(workers, 500.0))
    assert run_program(["import", "a.log", "b.log", "-o", "both"]) == 0
    assert run_program(["fit", "both", "-o", "both.json"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "the command trained 2 times" in shown
    assert "the step and its parts are of number 1, a.log" in shown


@pytest.mark.parametrize("packed", [False, True])
def test_one_who_watches_is_told_how_far_a_file_is_read(packed, tmp_path):
    lines = b"".join(b"step %d loss 0.5\n" % number for number in range(700_000))
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(lines, 1) if packed else lines)
    told = []
    with watched(lambda name, count: told.append((name, count))), open_source(path) as source:
        assert sum(1 for _ in source.lines()) == 700_000
    assert {name for name, _ in told} == {path}
    counts = [count for _, count in told]
    assert len(counts) > 2
    assert counts == sorted(counts)
    assert counts[-1] == path.stat().st_size
