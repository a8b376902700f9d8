"""The first paragraph of a study with published claims: whether each holds here."""

from summaries import trial

from steptime.measurements.summary_form import PublishedRatio, Summary, Value
from steptime.report.answer import answer


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
        "measured": Value(value=value, low=low, high=high),
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
    empty = claim(1, 1, 1, pairs=0, least=None, most=None, measured=Value(), published=216.0)
    assert "nothing measured here to compare it with (published 216x)" in answer(summary(empty))


def test_the_machine_of_a_claim_stands_next_to_this_one():
    text = answer(summary(claim(1.1, 1.2, 1.3, machine="1024 A100 GPUs")))
    assert "Published on 1024 A100 GPUs; measured here with at most 2 workers on cpu devices." in text


def test_a_study_without_claims_has_no_such_paragraph():
    assert answer(summary()) == ""
