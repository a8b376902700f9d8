"""The report as an HTML page."""

import re
from functools import cache

import pytest
from launches import STUDY, filled_store
from summaries import many, quickstart, ranked, summary, sweep, trial
from test_charts import quantiles_of

from steptime.analysis.summary import summarise
from steptime.document.section import Column, Section, SectionTable, TableRow, cells
from steptime.errors import StoreError
from steptime.report.groups import verdict
from steptime.report.page import page_text, sections_page, write_page
from steptime.report.sections import StudyFindings


def page(study, **options):
    folder = options.pop("folder", "steptime-results/race")
    fields = {"quantiles": quantiles_of(study), "study_text": STUDY, **options}
    return page_text(StudyFindings(study, **fields), folder)


@cache
def drawn_page(make):
    """The page of the study that ``make`` returns; drawn when a test first asks, not while tests are collected."""
    return page(make())


@pytest.mark.parametrize(
    "words",
    [
        "pytorch single and mxnet single cannot be distinguished at this budget",
        "pytorch allreduce is fastest: mxnet ps_sync takes 1.19x (1.15 to 1.22) the time",
        "30530 <small>29920 to 31140</small>",
        "1.19x <small>1.15 to 1.22</small>",
        "1=</span>",
        "efficiency<br>vs 1 worker",
        '<span class="tag">more workers than cores</span>',
        "Workers shared processor cores.",
        "cannot allocate 4294967296 bytes",
        "the weights of worker 1 are 0.34 away from the reference",
        "chainer has no parameter servers",
        "line 4 is damaged",
        "61,706",
        "2e-07",
        "Intel(R) Xeon(R) Gold 6230",
        "24 GiB",
        "/bin/python start.py job.json --rank 1",
        "pytorch 2.13.0, Python 3.11.9, environment pytorch (venv)",
        "CPU of other processes</dt><dd>0.0300 cores",
        "1 thread per worker, 1 server",
        "frameworks: [pytorch, mxnet]",
        "How to read this",
        "steptime report steptime-results/race --json",
    ],
)
def test_the_page_of_the_race_says(words):
    assert words in drawn_page(quickstart)


@pytest.mark.parametrize("forbidden", ["<script", 'http-equiv="refresh', "src=", "@import", "url(", "<iframe"])
def test_the_page_runs_nothing_and_loads_nothing(forbidden):
    assert forbidden not in drawn_page(quickstart)


def test_the_only_addresses_are_names_of_formats():
    assert set(re.findall(r"https?://[^\"'\s<]+", drawn_page(quickstart))) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_every_section_but_the_first_is_folded_below_its_title():
    titles = re.findall(r'(<details class="part"><summary.*?>)?<h2', drawn_page(quickstart))

    assert len(titles) > 5
    assert titles[0] == ""
    assert all(titles[1:])


def test_the_answer_is_stated_once():
    verdicts = [verdict(group) for group in StudyFindings(quickstart()).groups if len(group.rows) > 1]
    stated = [sentence for each in verdicts for sentence in each.removesuffix(".").split(". ")]

    assert len(verdicts) > 2
    assert [drawn_page(quickstart).count(each) for each in stated] == [1] * len(stated)


def first_screen(shown):
    """The paragraphs of the answer that a page shows, and those that it folds."""
    answer = shown.partition('<div class="answer">')[2].partition('<p class="dim">')[0]
    return [re.findall(r"<p>(.*?)</p>", part) for part in answer.split("<details>")]


def test_a_long_answer_begins_with_a_sentence_for_each_workload_at_most_workers_and_folds_the_rest():
    shown, folded = first_screen(drawn_page(quickstart))

    assert [each.partition(":")[0] for each in shown] == ["lenet5, 2 workers", "resnet50, 2 workers"]
    assert all(each.count(". ") == 0 for each in shown)
    assert [each.partition(":")[0] for each in folded][:2] == ["lenet5, 1 worker", "resnet50, 1 worker"]


def test_a_short_answer_is_not_folded():
    assert "The rest of the answer" not in page(sweep())


def test_the_ranking_of_most_workers_comes_before_the_folded_ones():
    _, _, rankings = drawn_page(quickstart).partition('id="rankings"')
    titles = re.findall(r"<(h3|summary)>([^<]*)", rankings.partition("</section>")[0])

    assert [tag for tag, _ in titles if tag == "h3"] == ["h3"]
    assert titles[0][0] == "h3"


def test_rows_of_one_name_share_it():
    rows = [TableRow(name, cells(str(number))) for number, name in enumerate("aab")]
    found = sections_page([Section("t", [SectionTable([Column("x")], rows)], id="t")], "t", "steptime t")

    assert re.findall(r'<th class="name"( rowspan="\d")? scope="row">(\w)', found) == [(' rowspan="2"', "a"), ("", "b")]


def test_a_command_that_several_processes_ran_is_listed_once():
    each = trial(commands=[["python", "start.py"]] * 3, id="a")

    assert "python start.py  # 3 processes" in page(summary([each]))


def test_of_more_than_four_groups_the_page_begins_with_a_sentence_for_each_workload():
    trials = [
        trial(name, batch=batch, id=f"{name}-{batch}", rate=rate, group=f"batch {batch}")
        for batch in range(1, 7)
        for name, rate in (("pytorch", 1000.0), ("mxnet", 900.0))
    ]
    shown = page(summary(trials, ranked(*trials)))
    _, _, rankings = shown.partition('id="rankings"')

    assert shown.partition('<div class="answer">')[2].partition("</div>")[0].count("<p>") == 1
    assert rankings.partition("</section>")[0].count("<details><summary>batch") == 5


def test_every_trial_has_its_commands():
    _, _, listed = drawn_page(quickstart).partition("exact commands of every trial")

    assert listed.count("start.py job.json --rank 0") == len(quickstart().trials)


def test_every_number_of_a_ranking_has_its_interval():
    cells = re.findall(
        r'<td class="number"[^>]*>([0-9.]+(?: ms| s|x| %)?)( <small>[0-9.]+ to [0-9.]+</small>)?',
        drawn_page(quickstart),
    )
    measured = [(text, interval) for text, interval in cells if re.search(r"ms|x|%", text)]

    assert len(measured) > 20
    assert all(interval for _, interval in measured)


def test_what_is_not_known_is_a_dash():
    assert re.search(r"<dt>not known</dt><dd>[^<]*cgroup throttled", drawn_page(quickstart))


def test_a_column_of_which_nothing_is_known_is_left_out():
    table = SectionTable([Column("a"), Column("b")], [TableRow("x", cells("1", "-")), TableRow("y", cells("-", "-"))])
    found = sections_page([Section("t", [table], id="t")], "t", "steptime t")

    assert ">a</th>" in found
    assert ">b</th>" not in found


def test_a_row_that_is_named_by_a_number_has_its_heading_on_a_phone():
    table = SectionTable([Column("a"), Column("b")], [TableRow("2", cells("1", "2"))], "workers")

    assert 'scope="row" data-title="workers">2' in sections_page([Section("t", [table], id="t")], "t", "steptime t")


def test_packages_of_one_environment_are_listed_once():
    known = {"name": "pytorch", "packages": {"numpy": "2.0.0"}}
    study = summary([trial(environment=known, id="a"), trial("mxnet", environment=known, id="b")])

    assert page(study).count("numpy 2.0.0") == 1
    assert "<summary>pytorch</summary>" in page(study)


def test_packages_of_an_environment_of_two_versions_name_the_trials_of_each():
    known = {"name": "pytorch", "packages": {"numpy": "2.0.0"}}
    other = {"name": "pytorch", "packages": {"numpy": "2.0.1"}}
    study = summary([trial(environment=known, id="a"), trial("mxnet", environment=other, id="b")])

    assert re.findall(r"<summary>pytorch: (\w+) ", page(study)) == ["pytorch", "mxnet"]


@pytest.mark.parametrize(
    "heading", ["samples/s", "slowdown<br>vs best", "scaling<br>efficiency<br>vs 1 worker", "marks"]
)
def test_a_heading_leads_to_its_explanation(heading):
    assert f'<a href="#reading">{heading}</a>' in drawn_page(quickstart)
    assert 'id="reading"' in drawn_page(quickstart)


def test_a_study_without_results_has_a_page():
    assert "No trial has a result yet" in page(summary())


def test_a_study_without_a_gate_says_that_nothing_was_checked():
    assert "these trials may train different things" in page(summary([trial()]))


@pytest.mark.parametrize("place", ["study", "question", "reason", "dataset", "option", "folder", "study file", "flag"])
def test_hostile_text_is_shown_and_not_obeyed(place):
    bad = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    shown = {
        "study": lambda: page(summary([trial()], study=bad)),
        "question": lambda: page(summary([trial()], question=bad)),
        "reason": lambda: page(summary([trial(rate=None, status="failed", reason=bad)])),
        "dataset": lambda: page(
            summary([trial(dataset=bad, group=bad), trial("mxnet", dataset=bad, group=bad, workers=1)])
        ),
        "option": lambda: page(summary([trial(varied_options={"x": bad}, options={"x": bad}), trial("mxnet")])),
        "folder": lambda: page(summary([trial()]), folder=bad),
        "study file": lambda: page(summary([trial()]), study_text=bad),
        "flag": lambda: page(summary([trial(flags=[bad])])),
    }[place]()

    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert "<img" not in shown


@pytest.mark.parametrize("study", [many(40), sweep(), quickstart()], ids=["forty trials", "sweep", "race"])
def test_the_page_is_small(study):
    assert len(page(study).encode()) < 2_000_000


def test_forty_groups_of_one_make_a_small_page():
    trials = [trial(batch=batch, id=f"t-{batch}") for batch in range(1, 41)]

    assert len(page(summary(trials)).encode()) < 2_000_000


def test_a_results_folder_becomes_a_page_with_its_step_times(tmp_path):
    store = filled_store(tmp_path / "results")
    path = tmp_path / "new" / "folder" / "report.html"
    write_page(store, StudyFindings(summarise(store)), path)
    text = path.read_text()

    assert "pytorch single is fastest" in text
    assert "How step times spread" in text
    assert STUDY in text


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path):
    store = filled_store(tmp_path / "results")
    taken = tmp_path / "report.html"
    taken.mkdir()

    with pytest.raises(StoreError, match=r"report\.html"):
        write_page(store, StudyFindings(summarise(store)), taken)

    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("report")] == ["report.html"]
