"""Logs that name slow ranks: which, by how much, and in how many reports."""

import pytest
from logs import LOGS, MEGATRON

from steptime.cli.app import run_program
from steptime.imported.log_forms import LOG_FORMS
from steptime.imported.slow_ranks import SlowRanks
from steptime.imported.text_log import read_log

DETECTED = (
    " 0: INFO:megatron.core.utils:[2026-03-14 23:07:56] | MnRtt/Rnk: {fast}ms/13 | MxRtt/Rnk: {slow}ms/{rank} | "
    "MnPwr/Rnk: 601796W/8 | MxPwr/Rnk: 683801W/18 | MnEtpt/Rnk: 560.82TF/{rank} | MxEtpt/Rnk: 608.83TF/13\n"
)
LOWEST = "0: ^^^^ Bottom 3 Ranks with lowest  Etpt(TF): 1.00TF/4, 1.10TF/5, 1.20TF/{other},\n"
HIGHEST = "0: ^^^^ Top    3 Ranks with highest Etpt(TF): 2.00TF/9, 2.10TF/8, 2.20TF/7,\n"
SCORES = """
[NeMo I 2026-11-27 10:00:00 straggler]
GPU relative performance:
 Worst performing 2/512 ranks:
  Rank=76 Node=h100-001-253-012 Score=0.{worst}
  Rank=13 Node=h100-001-010-003 Score=0.95
 Best performing 2/512 ranks:
  Rank=2 Node=h100-001-253-001 Score=0.99
  Rank=5 Node=h100-001-253-001 Score=0.98

GPU individual performance:
  Rank=3 Node=n Score=0.10
"""
WARNED = "Some GPUs have worse relative performance. Affected ranks: {ranks}\n"
IN_FORMS = ["{{StragglerId(rank=7, node='node-12')}}", "{{7}}", "[7]", "{{StragglerId(rank=7, node='7')}}"]


def times(slow: dict[int, float], prefix: str = "", timer: str = "forward-compute", ranks: int = 8) -> str:
    lines = [f"  {timer}:", *(f"     rank {rank:2d}: {slow.get(rank, 100.0 + rank / 10):.2f}" for rank in range(ranks))]
    return "".join(f"{prefix}{line}\n" for line in ("times across ranks (ms):", *lines))


def sentences(text: str) -> list[str]:
    read = SlowRanks()
    for line in text.splitlines():
        read.take(line)
    return list(read.sentences())


def test_the_slowest_rank_of_megatrons_detector_is_named_with_its_time_and_reports():
    text = "".join(
        DETECTED.format(fast=1446.49, slow=slow, rank=rank) for slow, rank in ((1571, 30), (1581, 30), (9, 2))
    )
    (sentence,) = sentences(text)
    assert sentence.startswith(
        "rank 30 is slowest in 2 of 3 reports of Megatron-LM's straggler detector: its round trip"
    )
    assert sentence.endswith("takes 1.58 s, that of the fastest rank 1.45 s")


def test_ranks_that_take_turns_to_be_slowest_are_not_blamed():
    text = "".join(DETECTED.format(fast=1.0, slow=2.0, rank=rank) for rank in range(4))
    assert sentences(text) == ["no rank is slowest in most of 4 reports of Megatron-LM's straggler detector"]


def test_ranks_of_least_throughput_are_those_of_most_lists():
    text = "".join(LOWEST.format(other=other) + HIGHEST for other in (1, 2, 6))
    assert sentences(text) == ["ranks 4, 5: among those of least throughput in most of 3 lists"]


@pytest.mark.parametrize("prefix", ["", "host-1: ", "15: "])
@pytest.mark.parametrize("slow", [(5,), (4, 5, 6, 7)], ids=["one", "a-group"])
def test_ranks_that_are_slow_in_most_reports_of_a_timer_are_named_together(prefix, slow):
    # Half of the ranks slow: the median lies between, and they are still more than a tenth above it.
    text = times(dict.fromkeys(slow, 160.0), prefix) * 2 + times({0: 300.0}, prefix)
    (sentence,) = sentences(text)
    assert sentence.startswith(f"forward-compute: {'rank 5' if len(slow) == 1 else 'ranks 4 to 7'} took ")
    assert sentence.endswith("of 8 ranks 100 ms (in most of 3 reports more than 1.1 times it)") or len(slow) > 1


@pytest.mark.parametrize("timer", ["all-grads-sync", "forward-recv", "interval-time", "forward-backward"])
def test_times_in_which_fast_ranks_wait_blame_no_rank(timer):
    assert sentences(times({5: 900.0}, timer=timer) * 3) == []


@pytest.mark.parametrize(
    "text", [times({}) * 3, times({5: 160.0}) + times({}) * 2, "(min, max) time across ranks (ms):\n  a: (1.0, 9.0)\n"]
)
def test_equal_ranks_and_reports_without_ranks_blame_no_rank(text):
    assert sentences(text) == []


def test_the_timer_that_costs_most_is_first():
    text = times({5: 160.0}) + times({2: 400.0}, timer="batch-generator")
    assert [sentence.partition(":")[0] for sentence in sentences(text)] == ["batch-generator", "forward-compute"]


def test_the_least_score_of_nvrx_is_named_with_its_node():
    assert sentences(SCORES.format(worst=84) + SCORES.format(worst=86)) == [
        "NVRx scores rank 76 (h100-001-253-012) least: 0.85 of the fastest, mean of 2 reports; rank 2 most: 0.99"
    ]


@pytest.mark.parametrize("ranks", IN_FORMS)
def test_a_warning_of_nvrx_names_its_ranks_and_no_number_of_a_node(ranks):
    assert sentences(WARNED.format(ranks=ranks.format())) == ["NVRx warns of stragglers in 1 report, mostly of rank 7"]


@pytest.mark.parametrize("number", ["9" * 5000, "1.2.3", "-1", "nan", ""], ids=lambda text: text[:5])
def test_numbers_that_are_none_blame_no_rank(number):
    one = DETECTED.format(fast=1.0, slow=2.0, rank=3)
    assert sentences(one.replace("2.0ms", f"{number}ms") + one.replace("ms/3", f"ms/{number}")) == []
    assert (
        sentences("times across ranks (ms):\n  optimizer:\n" + f"   rank  1: {number}\n   rank {number}: 1.0\n") == []
    )
    assert sentences(f"GPU relative performance:\n  Rank={number} Node=n Score={number}\n") == []


@pytest.mark.parametrize("form", LOGS.keys() & LOG_FORMS.keys())
def test_every_form_of_logs_shows_slow_ranks(form, tmp_path):
    (tmp_path / "log").write_text(LOGS[form][0] + DETECTED.format(fast=1.0, slow=2.0, rank=3))
    assert read_log(tmp_path / "log", LOG_FORMS[form]).notes[0].startswith("rank 3 is slowest in 1 of 1 report")


def test_the_report_of_an_imported_log_shows_its_slow_ranks(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "log").write_text(MEGATRON + times({5: 160.0}))
    assert run_program(["import", str(tmp_path / "log"), "-o", str(tmp_path / "out")]) == 0
    assert "forward-compute: rank 5 took 160 ms" in " ".join(capsys.readouterr().out.split())
