import subprocess
import sys

import polars as pl
import pytest
from simulated import a_failure, a_launch, a_store, a_training, a_trial, a_worker, an_epoch

from steptime.exports.export import export_tables
from steptime.results import results_files
from steptime.results.jsonlines import whole_lines
from steptime.results.store import Store
from steptime.study.training import Training

TIMES = [*[0.3] * 5, *[0.1, 0.11] * 20]


@pytest.fixture
def store(tmp_path):
    store = a_store(tmp_path / "results")
    trial = a_trial(workers=2, strategy="allreduce", options={"bucket_mb": 25.0})
    store.add_trial(trial)
    ends = [sum(TIMES[: count + 1]) for count in range(len(TIMES))]
    for number in range(2):
        begin = 7.0 + 100.0 * number
        workers = [a_worker([begin + end - 0.01 * rank for end in ends], rank, origin_s=begin) for rank in range(2)]
        store.append(a_launch(trial, number, workers=workers))
    store.append(a_failure(trial, 2))
    return store


def read(path):
    return pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)


@pytest.fixture(params=["parquet", "csv"])
def tables(request, store, tmp_path):
    paths = export_tables(store, tmp_path / "tables", request.param)
    return {path.stem: read(path) for path in paths}


def test_a_row_per_trial_holds_the_summary(tables):
    (row,) = tables["trials"].to_dicts()
    assert row["step_time_s_median"] == pytest.approx(0.1, rel=0.1)
    assert row["efficiency_baseline_workers"] == 2
    assert (row["launches"], row["failed_launches"], row["options"]) == (2, 1, "bucket_mb=25.0")


def test_a_row_per_step_adds_up_to_the_end(tables):
    steps = tables["steps"].filter(pl.col("launch") == 1)
    assert steps["step"].to_list() == list(range(len(TIMES)))
    assert steps["step_time_s"].to_list() == pytest.approx(TIMES)
    assert steps["end_s"][-1] == pytest.approx(sum(TIMES))


def test_steps_before_the_steady_part_are_marked(tables):
    steps = tables["steps"].filter(pl.col("launch") == 0)
    assert not steps["steady"][0]
    assert steps["steady"][-1]


def test_a_failed_launch_between_two_others_has_no_steady_step(store, tmp_path):
    store.append(a_launch(store.trials()[0], 3, workers=[a_worker([7.0 + 0.1 * step for step in range(1, 41)], 0)]))
    steps = read(export_tables(store, tmp_path / "more", "csv")[1])
    assert not steps.filter(pl.col("launch") == 2)["steady"].any()
    assert steps.filter(pl.col("launch") == 3)["steady"].all()


def test_the_tables_read_each_record_once(store, tmp_path, monkeypatch):
    lines = []

    def counted(folder, path):
        for line in whole_lines(folder, path):
            lines.append(line)
            yield line

    monkeypatch.setattr(results_files, "whole_lines", counted)
    export_tables(Store.open(store.path), tmp_path / "tables", "csv")
    assert len(lines) == len(set(lines)) == 3


def test_a_row_per_step_of_a_worker_has_its_own_clock_from_zero(tables):
    rows = tables["worker_steps"].filter((pl.col("launch") == 0) & (pl.col("worker") == 1))
    assert rows["step_time_s"][0] == pytest.approx(0.29)
    assert rows["end_s"][-1] == pytest.approx(sum(TIMES) - 0.01)


def test_failed_launches_have_no_steps(tables):
    assert tables["steps"]["launch"].unique().sort().to_list() == [0, 1]


def test_a_study_without_a_launch_gives_empty_tables(tmp_path):
    store = a_store(tmp_path / "empty")
    store.add_trial(a_trial())
    paths = export_tables(store, tmp_path / "tables", "parquet")
    assert [len(read(path)) for path in paths] == [1, 0, 0, 0, 0]


def test_a_row_per_epoch_has_the_measures_over_all_workers(store, tmp_path):
    trial = a_trial(framework="pytorch", training=Training(epochs=2), workers=2, strategy="allreduce", seed=7)
    store.add_trial(trial)
    epochs = [[an_epoch(correct=40, trained_s=2.0), an_epoch(correct=44, trained_s=3.0)], [an_epoch(), an_epoch()]]
    store.append(a_training(trial, seed=7, epochs=epochs, wall_s=10.0))
    store.append(a_training(trial, 1, seed=8, status="failed", reason="no", epochs=[]))
    (path,) = (path for path in export_tables(store, tmp_path / "tables", "csv") if path.stem == "trainings")

    first, second = read(path).to_dicts()
    assert first == {
        "trial": trial.id,
        "seed": 7,
        "epoch": 1,
        "accuracy": 0.84,
        "loss": 0.5,
        "seconds": 3.0,
        "learning_rate": 0.05,
    }
    assert (second["epoch"], second["seconds"]) == (2, 4.0)


def test_a_run_of_a_study_does_not_carry_the_table_library_in_memory():
    code = (
        "import sys, steptime.results.store, steptime.statistics.estimate, steptime.results.noise, "
        "steptime.results.machine, steptime.analysis.summary\n"
        "print([name for name in ('polars', 'pyarrow', 'pandas', 'scipy.stats', 'altair') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("to", ["parquet", "csv"])
def test_a_full_disk_is_named_with_the_file_and_leaves_no_part_of_it(store, tmp_path, to):
    folder = tmp_path / "tables"
    # A limit of files' sizes is met as a full disk is, and needs no file system of its own.
    # Coverage would meet it too, when it keeps what it has counted.
    export = f"'{sys.executable}' -m steptime export '{store.path}' --to {to} -o '{folder}'"
    program = f"unset COVERAGE_PROCESS_CONFIG; ulimit -f 2; exec {export}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 2, done.stderr
    assert "could not write" in done.stderr
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr
    assert all(read(path).width for path in folder.iterdir())
