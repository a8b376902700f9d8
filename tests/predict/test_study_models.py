"""The models of published papers find what was planted in a study's records, and say so in its first paragraph."""

import pytest
from launch_phases import STAGES
from planted_studies import COMPUTING, a_step, add, uneven, unhidden
from simulated import a_store

from steptime.analysis.summary import summarise
from steptime.predict.study_predictions import with_models
from steptime.report.answer import answer


def found(store):
    return with_models(summarise(store), store)


def error_of(comparison, model, case):
    (one,) = [each for each in comparison.errors if (each.model, each.case) == (model, case)]
    return one


@pytest.fixture(scope="module")
def imbalance(tmp_path_factory):
    return found(uneven(tmp_path_factory.mktemp("uneven") / "results"))


@pytest.fixture(scope="module")
def ssgd(tmp_path_factory):
    return found(unhidden(tmp_path_factory.mktemp("unhidden") / "results"))


def test_the_factor_of_hosts_is_the_one_that_was_planted(imbalance):
    factors = {each.case: each.factor.value for each in imbalance.models[0].imbalance}
    # One of two workers takes twice as long: the longest over the mean is 2 / 1.5.
    assert factors == {"even hosts": pytest.approx(1.0, abs=0.01), "slowed hosts": pytest.approx(4 / 3, rel=0.01)}


def test_the_model_with_the_measured_factor_is_the_measured_step(imbalance):
    ratio = error_of(imbalance.models[0], "measured factor", "slowed hosts").ratio.value
    assert ratio == pytest.approx(1.0, abs=0.01)


def test_the_model_of_the_mean_worker_is_too_short_by_what_the_slow_one_adds(imbalance):
    mean = 1.5 * COMPUTING + STAGES["exchange"] + STAGES["step"]
    ratio = error_of(imbalance.models[0], "mean worker", "slowed hosts").ratio.value
    assert ratio == pytest.approx(mean / a_step(2.0), rel=0.01)


def test_the_stated_shares_predict_the_slowed_step_from_the_even_one(imbalance):
    ratio = error_of(imbalance.models[0], "stated shares", "slowed hosts").ratio.value
    assert ratio == pytest.approx(1.0, abs=0.01)


def test_on_even_hosts_no_model_needs_the_factor(imbalance):
    ratios = [each.ratio.value for each in imbalance.models[0].errors if each.case == "even hosts"]
    assert ratios == pytest.approx([1.0, 1.0], abs=0.01)


def test_the_first_paragraph_says_the_factors_and_what_the_models_make_of_them(imbalance):
    text = answer(imbalance)
    assert "On slowed hosts, the load-imbalance factor" in text
    assert "is reference 1.33x" in text
    assert "On slowed hosts, of the measured step the model of the mean worker gives 0.77" in text


def test_a_step_that_hides_nothing_is_the_sequential_one(ssgd):
    assert ssgd.models[0].best["2 workers"] == "sequential"
    assert error_of(ssgd.models[0], "sequential", "2 workers").ratio.value == pytest.approx(1.0, abs=0.02)


def test_pipelined_input_lacks_the_time_of_loading(ssgd):
    ratio = error_of(ssgd.models[0], "pipelined input", "2 workers").ratio.value
    assert ratio == pytest.approx(1.0 - STAGES["step"] / a_step(), abs=0.01)


def test_computing_takes_longest_in_a_step_that_computes_most_of_its_time(ssgd):
    limits = {each.case: (each.part, each.share.value) for each in ssgd.models[0].limits}
    passes = STAGES["forward"] + STAGES["backward"]
    assert limits["2 workers"] == ("computing", pytest.approx(passes / a_step(), rel=0.02))


def test_links_without_limit_gain_what_the_exchange_takes(ssgd):
    gains = {each.remedy: each.speedup.value for each in ssgd.models[0].remedies}
    assert gains["links without limit"] == pytest.approx(a_step() / (a_step() - STAGES["exchange"]), rel=0.02)
    assert gains["communication hidden behind the backward pass"] == gains["links without limit"]


def test_a_free_update_gains_what_the_update_takes(ssgd):
    gains = {each.remedy: each.speedup.value for each in ssgd.models[0].remedies}
    saved = a_step() / (a_step() - STAGES["local"])
    assert gains["an update that takes no time"] == pytest.approx(saved, rel=0.02)


def test_the_first_paragraph_says_which_model_is_nearest_what_limits_and_what_would_help(ssgd):
    text = answer(ssgd)
    assert "With 2 workers, the model 'sequential' is nearest: it gives 1.00" in text
    assert "With several workers a step would be faster by links without limit 1.1" in text


def test_a_study_that_asks_for_no_model_has_none(tmp_path):
    store = a_store(tmp_path / "results")
    add(store, 0.1)
    assert (found(store).models, found(store).prediction) == ([], None)


def test_a_study_without_a_breakdown_says_that_nothing_can_be_compared(tmp_path):
    store = a_store(tmp_path / "results", performance_models=["s_sgd", "load_imbalance"])
    trial = add(store, 0.1, strategy="allreduce", workers=2)
    (store.path / "trials" / trial.id / "ablation.jsonl").unlink()
    text = answer(found(store))
    assert "no model of synchronous SGD can be compared with it" in text
    assert "the load-imbalance factor is unknown" in text
