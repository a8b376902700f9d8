"""What trials are called."""

from summaries import many, trial

from steptime.report.trial_names import Names


def test_an_option_that_varies_stands_in_the_name():
    trials = [trial(id=f"a-{mb}", varied_options={"bucket_mb": mb}) for mb in (1, 25)]

    assert [Names(trials).short(each) for each in trials] == [
        "pytorch allreduce bucket_mb=1",
        "pytorch allreduce bucket_mb=25",
    ]


def test_an_option_that_does_not_vary_stays_out_of_the_name():
    each = trial(options={"bucket_mb": 25})

    assert Names([each]).short(each) == "pytorch allreduce"


def test_a_variable_that_varies_stands_in_the_name_of_the_trial_that_has_it():
    trials = [trial(id="a-1"), trial(id="a-2", varied_variables={"KMP_BLOCKTIME": "1"})]

    assert [Names(trials).short(each) for each in trials] == ["pytorch allreduce", "pytorch allreduce KMP_BLOCKTIME=1"]


def test_trials_that_differ_in_servers_are_told_apart_by_them():
    trials = [trial("mxnet", "ps_sync", id=f"a-{servers}", servers=servers) for servers in (1, 2)]

    assert [Names(trials).short(each) for each in trials] == ["mxnet ps_sync servers=1", "mxnet ps_sync servers=2"]


def test_trials_of_two_containers_are_told_apart_by_them():
    trials = [trial("mxnet", "single", id=f"a-{name}", container=name) for name in (None, "apptainer exec a.sif")]

    assert [Names(trials).short(each) for each in trials] == [
        "mxnet single container=None",
        "mxnet single container=apptainer exec a.sif",
    ]


def test_trials_that_differ_in_helper_processes_are_told_apart_by_them():
    trials = [trial(id=f"a-{helpers}", loader_processes=helpers) for helpers in (0, 2)]

    assert [Names(trials).short(each) for each in trials] == [
        "pytorch allreduce loader_processes=0",
        "pytorch allreduce loader_processes=2",
    ]


def test_trials_that_differ_in_nothing_that_is_known_are_told_apart_by_their_ids():
    trials = [trial(id="a-1f"), trial(id="a-2e")]

    assert [Names(trials).short(each) for each in trials] == ["pytorch allreduce [1f]", "pytorch allreduce [2e]"]


def test_no_two_of_forty_trials_have_the_same_name():
    trials = many().trials
    names = Names(trials)

    assert len({names.short(each) for each in trials}) == len(trials)


def test_a_full_name_says_only_those_conditions_that_vary():
    trials = [trial(batch=batch) for batch in (32, 64)]

    assert Names(trials).full(trials[0]) == "pytorch allreduce, lenet5, 2 workers, batch 32 per worker"


def test_of_who_implements_a_strategy_a_full_name_has_the_first_word():
    each = trial("caffe", implementation="steptime's exchange over MPI")

    assert Names([each]).full(each) == "caffe allreduce (steptime's), lenet5, 2 workers"


def test_a_condition_that_the_workload_decides_stays_out_of_the_full_name():
    trials = [trial(), trial(workload="resnet50")]

    assert Names(trials).full(trials[1]) == "pytorch allreduce, resnet50, 2 workers"
