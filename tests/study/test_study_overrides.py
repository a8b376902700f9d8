"""``key.path=value`` on the command line replaces a value of the study, for this run."""

import pytest

TEXT = """\
workloads:
- {name: lenet5, dataset: digits}
- resnet50
frameworks: [pytorch, mxnet]
batch_per_worker: 64
options: {pytorch: {layout: nhwc}}
"""


def test_a_list_may_be_written_as_in_yaml(read):
    assert read(TEXT, "workers=[1,2,4]").workers == [1, 2, 4]


def test_a_list_may_be_written_with_bare_commas(read):
    study = read(TEXT, "frameworks=pytorch,mxnet", "workers=1,2,4")

    assert (study.frameworks, study.workers) == (["pytorch", "mxnet"], [1, 2, 4])


def test_commas_in_a_text_stay_what_they_are(read):
    assert read(TEXT, "question=Who is faster, and why?").question == "Who is faster, and why?"


def test_a_value_of_an_item_is_reached_by_its_index(read):
    assert read(TEXT, "workloads.0.batch_per_worker=32").workloads[0].batch_per_worker == [32]


def test_a_value_of_an_item_is_reached_by_its_name(read):
    assert read(TEXT, "workloads.resnet50.image=64").workloads[1].image == (64, 64)


def test_an_item_written_as_a_bare_name_takes_further_keys(read):
    study = read("workloads: lenet5\nframeworks: pytorch", "workloads.0.dataset=digits", "loaders.processes=2")

    assert (study.workloads[0].dataset, study.loaders[0].processes) == ("digits", [2])


def test_a_mapping_that_the_file_lacks_is_made(read):
    assert not read(TEXT, "equivalence.enabled=false").equivalence.enabled


def test_an_option_is_replaced_and_its_neighbours_stay(read):
    options = read(TEXT, "options.pytorch.bucket_mb=1,25").options

    assert options == {"pytorch": {"layout": ["nhwc"], "bucket_mb": [1, 25]}}


def test_null_takes_a_key_away(read):
    study = read(TEXT, "batch_per_worker=null", "global_batch=128")

    assert (study.batch_per_worker, study.global_batch) == (None, [128])


def test_of_two_overrides_of_one_key_the_later_counts(read):
    assert read(TEXT, "seed=1", "seed=2").seed == 2


def test_an_override_mends_a_mistake_of_the_file(read):
    assert read(TEXT + "workers: [0]\nworkers: 1\n", "workers=2").workers == [2]


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (
            "frameworks=mxnet,pytroch",
            (
                "override 'frameworks=mxnet,pytroch': frameworks: unknown framework 'pytroch'; did you mean 'pytorch'? "
                "(choices: mxnet, pytorch)"
            ),
        ),
        ("workers=none", "override 'workers=none': workers: 'none' is not a whole number"),
        ("workers=", "override 'workers=': workers: is empty; give it a value, or remove it"),
        ("workers", "override 'workers': write KEY=VALUE, for example workers=[1,2] or equivalence.enabled=false"),
        ("a..b=1", "override 'a..b=1': write KEY=VALUE, for example workers=[1,2] or equivalence.enabled=false"),
        (
            "equivalence.on=true",
            "override 'equivalence.on=true': equivalence.on: unknown key 'on' (allowed keys: enabled, repeats, steps)",
        ),
        (
            "workloads.2.image=64",
            "override 'workloads.2.image=64': workloads has no '2'; it has 0 (lenet5), 1 (resnet50)",
        ),
        ("seed.a=1", "override 'seed.a=1': seed is 7, which has no 'a' in it"),
        (
            "workers=[1,2",
            (
                "override 'workers=[1,2': not valid YAML: while parsing a flow sequence: expected ',' or ']', "
                "but got '<stream end>'"
            ),
        ),
        (
            "question=!!python/name:os.system",
            (
                "override 'question=!!python/name:os.system': question: the tag !!python/name:os.system is not "
                "allowed; a study holds plain values only"
            ),
        ),
    ],
)
def test_a_mistake_in_an_override_names_the_override_and_the_key(mistakes, override, sentence):
    assert mistakes(TEXT + "seed: 7\n", override) == [sentence]


def test_mistakes_of_the_file_and_of_overrides_are_reported_together(mistakes):
    found = mistakes(TEXT + "target: much\n", "workers=none", "bad")

    assert [sentence.split(":")[0] for sentence in found] == ["race.yaml", "override 'workers=none'", "override 'bad'"]


def test_breakdown_that_is_switched_on_takes_settings(read):
    assert read(TEXT, "breakdown=true", "breakdown.seconds=3s").breakdown.seconds == 3.0


def test_breakdown_that_is_switched_off_is_none(read):
    assert read(TEXT, "breakdown=false").breakdown is None
