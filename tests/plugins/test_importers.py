"""Importers: each file is read by the row that recognises it, and a plug-in brings a further one."""

import re
from importlib.metadata import entry_points

import pytest
from typer.testing import CliRunner

from steptime.attached.summary import attached_run
from steptime.catalog.plugins import plugins_of
from steptime.cli.app import app
from steptime.errors import UsageError
from steptime.importers import IMPORTS, Importer, importers_of, read_imports

CURVE = "workers,step_time_s\n1,0.12\n2,0.131\n4,0.14\n"
NCCL = """# nThread 1 nGpus 2 minBytes 1
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    37.89   27.67   27.67      0    38.57   27.19   27.19      0
    33554432       8388608     float     sum      -1    377.6   88.87   88.87      0    377.7   88.85   88.85      0
"""
TOY = """
import re
from steptime.importers import ImportedRecords, Importer
from steptime.results.attached_files import AttachedFiles, AttachedHeader, ProcessLines
from steptime.results.attached_lines import Clock, ProcessLine, RankLine, StepLine

STEP = re.compile(r"toy rank (\\d+) of (\\d+) iteration (\\d+) took ([\\d.]+) ms")


def read(path):
    processes, at = {}, {}
    for rank, world, number, ms in STEP.findall(path.read_text()):
        clock = Clock(wall_ns=0, monotonic_ns=0)
        process = ProcessLine(format=1, host="toy", pid=int(rank), begin_ns=0, clock=clock, boot="b")
        lines = processes.setdefault(rank, ProcessLines(process, RankLine(int(rank), int(world))))
        begin, duration = at.get(rank, 0), round(float(ms) * 1e6)
        lines.take(StepLine(number=int(number), begin_ns=begin, duration_ns=duration))
        at[rank] = begin + duration
    times = {"begin_ns": 0, "wall_minus_monotonic_ns": 0, "started_at": "2026-11-27T00:00:00Z"}
    header = AttachedHeader(command=["toy"], boot="b", **times)
    return ImportedRecords(run=(header, AttachedFiles(list(processes.values()), [], [], [])))


ROW = Importer("toy", "a log of toy", "run", lambda head: "toy rank" in head, read)
BROKEN = 7
"""


@pytest.fixture
def files(tmp_path):
    """Return a file of each form by the name of its importer."""
    steps = [(step, rank) for step in range(40) for rank in (0, 1)]
    log = "".join(f"toy rank {rank} of 2 iteration {step} took {20 + step % 3} ms\n" for step, rank in steps)
    texts = {"curve": CURVE, "nccl-tests": NCCL, "toy": log}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: tmp_path / name for name in texts}


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Install a distribution with an importer of a made-up log, and one that is broken."""
    site = tmp_path / "site"
    about = site / "toy-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "toylog.py").write_text(TOY)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[steptime.importers]\ntoy = toylog:ROW\nbroken = toylog:BROKEN\n")
    monkeypatch.syspath_prepend(str(site))
    plugins_of.cache_clear()
    assert {point.name for point in entry_points(group="steptime.importers")} == {"toy", "broken"}
    yield
    plugins_of.cache_clear()


@pytest.mark.parametrize("name", ["curve", "nccl-tests"])
def test_a_file_is_read_by_the_row_that_recognises_it(files, name):
    [records] = read_imports([files[name]], IMPORTS[name].gives)
    assert records.provenance.importer == name
    assert records.provenance.path == str(files[name])
    assert re.fullmatch("[0-9a-f]{64}", records.provenance.sha256)
    assert bool(records.links) == (name == "nccl-tests")
    assert bool(records.curves) == (name == "curve")


@pytest.mark.parametrize(
    ("name", "kind", "verb"), [("curve", "links", "predict --curve"), ("nccl-tests", "curves", "fit DIR")]
)
def test_a_file_of_another_form_is_named_with_the_command_that_takes_it(files, name, kind, verb):
    with pytest.raises(UsageError) as caught:
        read_imports([files[name]], kind)
    [mistake] = caught.value.mistakes
    assert IMPORTS[name].about in mistake
    assert verb in mistake
    assert str(files[name]) in mistake.partition("give it to")[2]


def test_predict_names_output_of_nccl_tests_as_what_it_is(files):
    result = CliRunner().invoke(app, ["predict", "--curve", str(files["nccl-tests"])])
    assert "output of nccl-tests" in str(result.exception)


def test_mistakes_of_all_files_are_named_at_once(tmp_path):
    (tmp_path / "empty").write_text("nothing\n")
    with pytest.raises(UsageError) as caught:
        read_imports([tmp_path / "empty", tmp_path / "missing"], "links")
    first, second = caught.value.mistakes
    assert "empty" in first
    assert "missing" in second


def test_a_plug_in_brings_a_reader_of_a_made_up_log_as_a_run(files, plugin):
    assert "toy" in importers_of("run")
    [records] = read_imports([files["toy"]], "run")
    run = attached_run(*records.run)
    assert run.steps > 0
    assert run.step_s.value == pytest.approx(0.021, rel=0.05)
    assert [rank.rank for rank in run.ranks] == [0, 1]


def test_a_broken_plug_in_disturbs_no_other(files, plugin):
    assert "broken" in IMPORTS
    assert read_imports([files["curve"]], "curves")[0].curves


@pytest.mark.parametrize("name", ["curve", "nccl-tests"])
def test_every_row_is_an_importer_by_its_name(name):
    assert isinstance(IMPORTS[name], Importer)
    assert importers_of(IMPORTS[name].gives)[name] is IMPORTS[name]
