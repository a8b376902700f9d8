"""The first paragraph of a study with published claims: whether each holds here."""

from ablations import cluster
from summaries import MACHINE, quickstart, trial
from summaries import summary as a_summary
from trainings import trained, trainings

from steptime.analysis.model_form import ModelComparison, StudyPrediction
from steptime.analysis.summary_form import PaperForm, PublishedRatio, Summary
from steptime.document.plain_text import plain_text
from steptime.report.answer import answer, paper_line
from steptime.report.groups import verdict
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings
from steptime.results.json_form import NOT_MEASURED, Interval


def summary(*published: PublishedRatio) -> Summary:
    return Summary(
        study="s",
        question="",
        machine={},
        trials=[trial(workers=2)],
        ranking=[],
        equivalence=[],
        published=list(published),
        skipped=[],
        problems=[],
    )


def claim(low: float, value: float, high: float, **changes: object) -> PublishedRatio:
    fields = {
        "claim": "DALI is faster",
        "source": "Aach et al.",
        "published": None,
        "measured": Interval(value=value, low=low, high=high),
        "least": low,
        "most": high,
        "pairs": 3,
    }
    return PublishedRatio.model_validate({**fields, **changes})


def test_a_claim_whose_interval_lies_above_one_holds():
    assert answer(summary(claim(1.1, 1.2, 1.3))).startswith("DALI is faster: that holds here, by 1.20x (1.10 to 1.30)")


def test_a_claim_whose_interval_holds_one_is_not_shown():
    assert "DALI is faster: that is not shown here" in answer(summary(claim(0.9, 1.0, 1.1)))


def test_a_claim_whose_interval_lies_below_one_does_not_hold():
    assert "DALI is faster: that does not hold here" in answer(summary(claim(0.7, 0.8, 0.9)))


def test_a_claim_that_nothing_can_be_compared_with_says_so():
    empty = claim(1, 1, 1, pairs=0, least=None, most=None, measured=NOT_MEASURED, published=216.0)
    assert "nothing measured here to compare it with (published 216x)" in answer(summary(empty))


def test_the_machine_of_a_claim_stands_next_to_this_one():
    text = answer(summary(claim(1.1, 1.2, 1.3, machine="1024 A100 GPUs")))
    assert "Published on 1024 A100 GPUs; measured here with at most 2 workers on cpu devices." in text


def test_a_study_without_claims_has_no_such_paragraph():
    assert answer(summary()) == ""


def test_the_paper_of_a_study_is_named_with_its_year_and_address():
    paper = PaperForm(title="On Steps", authors="A. Author", year=2018, address="https://example.org/steps")
    line = paper_line(a_summary(paper=paper))
    assert line == "after A. Author, “On Steps”, 2018, https://example.org/steps"


def test_a_study_without_a_paper_names_none():
    assert paper_line(a_summary()) == ""


def test_more_processes_than_cores_say_nothing_of_separate_hosts():
    crowded = trial(workers=MACHINE["cores"] + 1, cluster=cluster())
    text = answer(a_summary([crowded], published=[claim(1.1, 1.2, 1.3)]))
    assert "Trials of 5 workers have more processes than this machine has cores (4), which take turns" in text


def test_models_on_emulated_hosts_are_no_cluster_of_gpus():
    text = answer(a_summary([trial(cluster=cluster())], models=[ModelComparison(family="s_sgd")]))
    assert text.endswith("ratios to a cluster of separate hosts with GPUs mean little.")


def test_a_refused_prediction_says_why():
    text = answer(a_summary(prediction=StudyPrediction(conditions="", measured_workers=0, refused="no launch")))
    assert text == "Nothing is predicted: no launch."


def test_the_page_begins_with_the_answer():
    found = a_summary([trial()], published=[claim(1.1, 1.2, 1.3)])
    assert plain_text(answer(found)) in page_text(StudyFindings(found), "folder").replace("&#39;", "'")


def where(found: Summary, *texts: str) -> list[int]:
    """Return where the page has each text first."""
    page = page_text(StudyFindings(found), "folder").replace("&#39;", "'")
    return [page.index(plain_text(each)) for each in texts]


def test_who_is_fastest_comes_before_a_claim_where_no_paper_asks_it():
    found = quickstart().model_copy(update={"published": [claim(1.1, 1.2, 1.3)]})
    fastest, claimed = where(found, verdict(StudyFindings(found).groups[-1]).partition(". ")[0], answer(found))
    assert fastest < claimed


def test_the_claims_of_a_paper_come_before_who_is_fastest():
    paper = PaperForm(title="On Steps", authors="A. Author", year=2018, address="https://example.org/steps")
    found = quickstart().model_copy(update={"published": [claim(1.1, 1.2, 1.3)], "paper": paper})
    fastest, claimed = where(found, verdict(StudyFindings(found).groups[0]), answer(found))
    assert claimed < fastest


def test_a_refused_prediction_without_a_paper_is_among_the_models():
    found = a_summary(prediction=StudyPrediction(conditions="", measured_workers=0, refused="no launch"))
    heading, said = where(found, '<section id="models">', "Nothing is predicted: no launch.")
    assert heading < said


def learned(*tied: bool) -> str:
    """Return the answer of a study of one training per schedule, the first of which is the best."""
    schedules = ("cosine", "constant", "step")
    found = trainings(*(trained(number, schedules[number]) for number in range(1 + len(tied))))
    places = [
        place.model_copy(update={"tied_with_best": is_tied})
        for place, is_tied in zip(found.accuracy, (True, *tied), strict=True)
    ]
    return answer(found.model_copy(update={"accuracy": places}))


def test_the_best_training_is_named_with_its_interval_and_seeds():
    assert "the best is pytorch allreduce, cosine, final 98.00 % (97.60 to 98.40), 5 seeds; of the 2 " in learned(
        True, False
    )


def test_schedules_that_are_behind_are_apart_from_those_that_are_tied():
    text = learned(True, False)
    assert "of the 2 others 1 is tied with it." in text
    assert "Learning-rate schedules of the best and those tied with it: cosine and constant; behind: step." in text


def test_a_tie_of_all_schedules_is_admitted():
    assert "No learning-rate schedule is shown to be better than the others." in learned(True, True)


def test_one_training_is_no_answer():
    assert learned() == ""
