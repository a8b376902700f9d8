import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import World, a_profile, observed

from steptime.errors import UsageError
from steptime.predict.query import KEYS, check_sizes, read_queries, read_workers


@pytest.fixture(scope="module")
def profile():
    return a_profile(observed(World(), 1))


def mistakes(overrides, profile):
    with pytest.raises(UsageError) as caught:
        read_queries(overrides, profile)
    return caught.value.mistakes


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4", [4]),
        ("4,8,16", [4, 8, 16]),
        ("16, 4, 4", [4, 16]),
        ("4,8,...,64", [4, 8, 16, 32, 64]),
        ("4,8,…,1024", [4, 8, 16, 32, 64, 128, 256, 512, 1024]),
        ("4,6,...,12", [4, 6, 8, 10, 12]),
        ("1,2,...,7", [1, 2, 4, 7]),
    ],
)
def test_worker_counts_are_read(text, counts):
    assert read_workers(text) == counts


@pytest.mark.parametrize(
    "text", ["0", "-1", "4,-8", "x", "", "4,,8", "1.5", "...,8", "4,...,8", "8,4,...,2", "4,8,..."]
)
def test_worker_counts_that_are_none_are_refused(text):
    with pytest.raises(UsageError, match="--workers"):
        read_workers(text)


def test_all_wrong_worker_counts_are_told_at_once():
    with pytest.raises(UsageError) as caught:
        read_workers("0,x,-3")
    assert len(caught.value.mistakes) == 3


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=8))
def test_lists_of_numbers_come_back_sorted(counts):
    assert read_workers(",".join(map(str, counts))) == sorted(set(counts))


@pytest.mark.parametrize(
    ("override", "near"),
    [
        ("stratgy=allreduce", "'strategy'"),
        ("interconnect.bandwith=1Gbit/s", "'interconnect.bandwidth'"),
        ("strategy=alreduce", "'allreduce'"),
        ("workload=resnet15", "'resnet152'"),
        ("framework=pytorhc", "'pytorch'"),
        ("device=gpu", "'cuda'"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(profile, override, near):
    (mistake,) = mistakes([override], profile)
    assert f"did you mean {near}" in mistake
    assert override in mistake


def test_workers_among_the_keys_are_answered_with_the_option(profile):
    (mistake,) = mistakes(["workers=8,16"], profile)
    assert mistake.endswith("--workers 8,16")


@pytest.mark.parametrize("text", ["0", "x", "8,", "4,...,"])
def test_no_numbers_are_proposed_that_the_option_would_refuse(profile, text):
    (mistake,) = mistakes([f"workers={text}"], profile)
    assert mistake.endswith("--workers 4,8,16")


@pytest.mark.parametrize("text", ["16,", ",16", "4,,8"])
def test_a_comma_with_nothing_beside_it_is_named(text):
    with pytest.raises(UsageError, match=f"nothing beside a comma of '{text}'"):
        read_workers(text)


@pytest.mark.parametrize("text", ["5", "50", "0.5"])
def test_a_delay_without_a_unit_is_asked_for_one(profile, text):
    (mistake,) = mistakes([f"interconnect.delay={text}"], profile)
    assert f"{text}us or {text}ms" in mistake


@pytest.mark.parametrize(
    "override",
    [
        "workers",
        "strategy=",
        "bucket_mb=0",
        "bucket_mb=-1",
        "bucket_mb=nan",
        "batch_per_worker=0",
        "batch_per_worker=1.5",
        "servers=-1",
        "interconnect.bandwidth=25",
        "interconnect.bandwidth=0Gbit/s",
        "interconnect.delay=-1ms",
        "hosts=none",
    ],
)
def test_values_that_cannot_be_are_told_with_their_place(profile, override):
    (mistake,) = mistakes([override], profile)
    assert override.partition("=")[0] in mistake


def test_a_key_given_twice_is_a_mistake(profile):
    assert "given twice" in mistakes(["servers=1", "servers=2"], profile)[0]


@pytest.mark.parametrize(
    "overrides",
    [
        ["batch_per_worker=8", "global_batch=64"],
        ["strategy=allreduce", "servers=2"],
        ["strategy=single", "interconnect.bandwidth=1Gbit/s"],
        ["strategy=single", "bucket_mb=1"],
        ["strategy=fsdp", "server_placement=own"],
    ],
)
def test_contradictory_overrides_name_each_other(profile, overrides):
    (mistake,) = mistakes(overrides, profile)
    for override in overrides:
        assert override.partition("=")[0] in mistake


def test_all_mistakes_are_told_at_once(profile):
    assert (
        len(mistakes(["stratgy=x", "workload=x", "bucket_mb=x", "batch_per_worker=1", "global_batch=2"], profile)) == 4
    )


@pytest.mark.parametrize(
    ("workers", "overrides"),
    [
        ([3], ["global_batch=64"]),
        ([2], ["hosts=4"]),
        ([8], ["hosts=2", "workers_per_host=2"]),
        ([2], ["strategy=single"]),
    ],
)
def test_sizes_that_contradict_the_workers_are_refused(profile, workers, overrides):
    with pytest.raises(UsageError, match=str(workers[0])):
        check_sizes(workers, read_queries(overrides, profile))


def test_every_key_has_a_reader_that_refuses_nonsense_or_a_choice(profile):
    for key in KEYS:
        assert mistakes([f"{key}=?"], profile)


@pytest.mark.parametrize(
    "override",
    [
        *(f"{key}=1000000000000" for key in ("batch_per_worker", "global_batch", "servers", "hosts", "cores_per_host")),
        "interconnect.bandwidth=1000000000Gbit/s",
        "interconnect.bandwidth=0.001bit/s",
        "interconnect.delay=1h",
        "bucket_mb=1e300",
        "topk_share=1e-300",
    ],
)
def test_what_is_outside_every_model_is_refused_with_its_place(profile, override):
    assert any(override in mistake for mistake in mistakes([override], profile))


def test_a_million_workers_are_outside_every_model(profile):
    with pytest.raises(UsageError, match="from 1 to 100000"):
        read_workers("1000000")
    with pytest.raises(UsageError, match="from 1 to 100000"):
        check_sizes([1_000_000], read_queries([], profile))
