"""The batch script of a study: what it asks Slurm for, what it holds, and how it is written and handed over."""

import json
import subprocess
from pathlib import Path

import pytest

from steptime.errors import UsageError
from steptime.runner.plan import plan_study
from steptime.runner.slurm_job import SlurmJob

STUDY = "workloads: lenet5\nframeworks: reference\nworkers: 2\ndevice: cpu\n"
CHANGES = ("slurm.nodes=2", "slurm.time=90m")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study in a folder that has a space in its name."""
    file = tmp_path / "my studies" / "race.yaml"
    file.parent.mkdir()
    file.write_text(STUDY)
    return file


def job_of(study: Path, *options: str, changes: tuple[str, ...] = CHANGES) -> SlurmJob:
    plan = plan_study(str(study), [*changes, "launcher=slurm"], study.absolute().parent / "results", None)
    return SlurmJob(plan, str(study), changes, ["echo ready >&2"], options)


def plan_of(job: SlurmJob, cwd: str = "/") -> dict[str, object]:
    """Run the script in another folder, for the plan of its study alone."""
    script = job.script.replace(" launcher=slurm ", " launcher=slurm --dry-run --json ")
    done = subprocess.run(["bash"], input=script, cwd=cwd, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def directives(job: SlurmJob) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in job.script.splitlines() if line.startswith("#SBATCH ")]


def test_the_batch_script_asks_for_the_nodes_and_becomes_the_run(study):
    job = job_of(study, "--qos=high")
    assert {"--nodes=2", "--time=1:30:00", "--qos=high"} <= set(directives(job))
    lines = job.script.splitlines()
    assert lines[lines.index("echo ready >&2") + 1].startswith("exec ")


def test_the_script_runs_the_study_as_it_was_submitted_whatever_became_of_its_file(study):
    job = job_of(study)
    study.write_text("nothing: of this\n")
    assert len(plan_of(job)["trials"]) == len(job.plan.expansion.trials)


def test_relative_paths_in_the_study_start_at_its_folder_in_the_job_too(study):
    study.write_text(f"{STUDY}environments: {{reference: {{kind: existing, python: ./bin/python}}}}\n")
    assert str(study.parent / "bin" / "python") in json.dumps(plan_of(job_of(study)))


def test_the_job_works_in_the_folder_in_which_it_was_submitted(study, monkeypatch):
    monkeypatch.chdir(study.parent)
    assert f"--chdir='{study.parent}'" in directives(job_of(Path("race.yaml")))


def test_the_script_keeps_the_name_that_the_study_has_from_its_file(study):
    assert plan_of(job_of(study))["study"] == "race"


def test_the_text_of_a_study_cannot_end_before_its_end(study):
    study.write_text(f"{STUDY}#\n#SBATCH --nodes=9\nquestion: |\n  EOF\n  STUDY\n  $(touch nothing) `id`\n")
    assert plan_of(job_of(study))
    assert "--nodes=2" in directives(job_of(study))


@pytest.mark.parametrize(
    ("written", "directive"),
    [
        ("90", "1:30:00"),  # all forms of sbatch: minutes
        ("90:30", "1:30:30"),  # minutes:seconds
        ("1:30:00", "1:30:00"),
        ("2-12", "60:00:00"),  # days-hours
        ("2-12:30", "60:30:00"),
        ("0-00:10:30", "0:10:30"),
        ("36h", "36:00:00"),
        ("1h30m", "1:30:00"),
        ("5400.0", "1:30:00"),  # as a results folder keeps it
    ],
)
def test_the_time_of_a_job_is_written_as_sbatch_takes_it(study, written, directive):
    assert f"--time={directive}" in directives(job_of(study, changes=("slurm.nodes=2", f"slurm.time={written}")))


def test_the_time_of_a_job_means_in_a_file_what_it_means_to_sbatch(study):
    study.write_text(f"{study.read_text()}slurm: {{nodes: 2, time: 1:30:00}}\n")
    assert "--time=1:30:00" in directives(job_of(study, changes=()))


@pytest.mark.parametrize("written", ["1:2:3:4", "1-2-3", "-5", "1:", "1-", ":30", "1-2:3:4:5", "²", "0", "0:00"])
def test_what_sbatch_takes_for_no_time_is_refused(study, written):
    with pytest.raises(UsageError, match=r"slurm\.time"):
        job_of(study, changes=("slurm.nodes=2", f"slurm.time={written}"))


def test_slurm_keeps_a_job_with_spare_nodes_only_where_a_time_limit_ends_it(study):
    limited = job_of(study, changes=("slurm.nodes=3", "slurm.time=90m"))
    endless = job_of(study, changes=("slurm.nodes=3",))
    assert ["--no-kill" in directives(job) for job in (limited, endless, job_of(study))] == [True, False, False]


def test_the_user_is_told_what_becomes_of_a_job_with_spare_nodes_whose_first_node_dies(study):
    (told,) = job_of(study, changes=("slurm.nodes=3", "slurm.time=90m")).warnings
    assert "no trial needs 1 of the job's nodes" in told
    assert "Where the first node dies, Slurm keeps the others with nothing on them until the time limit" in told


def test_the_user_is_told_that_spare_nodes_are_of_no_use_without_a_time_limit(study):
    (told,) = job_of(study, changes=("slurm.nodes=3",)).warnings
    assert "slurm.time is not set: where a node dies, Slurm ends the job and queues it again" in told


def test_a_job_without_spare_nodes_needs_no_warning(study):
    assert job_of(study).warnings == []


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--qos=high", "--qos=high"),
        ("--comment=two words", "--comment='two words'"),
        ("--comment two words", "--comment 'two words'"),
        ("-C gpu&fast", "-C 'gpu&fast'"),
        ("--contiguous", "--contiguous"),
    ],
)
def test_the_value_of_an_option_is_one_word_for_slurm(study, option, line):
    assert directives(job_of(study, option))[-1] == line


def test_an_option_with_a_line_break_is_refused_with_its_value(study):
    with pytest.raises(UsageError, match=r"'--comment=a\\nrm -r \.' cannot be an option of sbatch: it holds a line"):
        _ = job_of(study, "--comment=a\nrm -r .").script


def test_the_batch_script_asks_for_all_memory_of_its_nodes(study):
    assert "--mem=0" in directives(job_of(study))


@pytest.mark.parametrize("option", ["--mem=4G", "--mem 4G", "--mem-per-cpu=1G", "--mem-per-gpu=9G"])
def test_memory_that_the_user_asks_for_is_left_as_it_is(study, option):
    assert [line for line in directives(job_of(study, option)) if line.startswith("--mem")] == [option]


def test_binding_to_memory_says_nothing_of_how_much(study):
    assert "--mem=0" in directives(job_of(study, "--mem-bind=local"))
