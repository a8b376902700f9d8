"""Every mistake in a study file is named, at its line, with what would be right; and all of them at once."""

import re

import pytest

from steptime.errors import StudyError
from steptime.study.study_file import read_study

TOP = "workloads: lenet5\nframeworks: pytorch\n"  # what follows in a case begins on line 3
DATA = "workloads: {name: lenet5, dataset: digits}\nframeworks: pytorch\n"

ONE_MISTAKE = [
    pytest.param(
        "workloads: lenet5\nframeworks: [mxnet, pytroch]",
        "race.yaml:2: frameworks: unknown framework 'pytroch'; did you mean 'pytorch'? (choices: mxnet, pytorch)",
        id="unknown framework",
    ),
    pytest.param(
        "frameworks: pytorch\nworkloads:\n- lenet5\n- {name: resnet5}",
        "race.yaml:4: workloads.1.name: unknown workload 'resnet5'; did you mean 'resnet50'? "
        "(choices: lenet5, resnet50)",
        id="unknown workload",
    ),
    pytest.param(
        TOP + "strategies:\n- single\n- alreduce",
        "race.yaml:5: strategies: unknown strategy 'alreduce'; did you mean 'allreduce'? "
        "(choices: all, allreduce, auto, ps_sync, single)",
        id="unknown strategy",
    ),
    pytest.param(
        TOP + "loaders: {name: dali, processes: 1}",
        "race.yaml:3: loaders.name: unknown loader 'dali' (choices: auto, native, synthetic)",
        id="unknown loader",
    ),
    pytest.param(
        "frameworks: pytorch\nworkloads:\n  name: lenet5\n  dataset: digit",
        "race.yaml:4: workloads.dataset: unknown dataset 'digit'; did you mean 'digits'? (choices: digits, photos); "
        "a folder of your own is written with a slash, as ./digit",
        id="unknown dataset",
    ),
    pytest.param(
        "frameworks: pytorch\nworkloads: {name: lenet5, dataset: digits, tokens: bpe}",
        "race.yaml:2: workloads.tokens: is for text of your own; name its folder or file as the dataset",
        id="tokens without text",
    ),
    pytest.param(
        "frameworks: pytorch\nworkloads:\n- {name: lenet5, dataset: ./a}\n"
        "- {name: resnet50, dataset: ./a, tokens: bpe}",
        "race.yaml:4: workloads.1: reads ./a in another way than a workload before; give both the same tokens, "
        "vocabulary, text_field",
        id="text read in two ways",
    ),
    pytest.param(
        TOP + "launcher: slurn",
        "race.yaml:3: launcher: unknown launcher 'slurn' (choices: auto, inline, local, mpi)",
        id="unknown launcher",
    ),
    pytest.param(
        TOP + "precision: fp23",
        "race.yaml:3: precision: unknown precision 'fp23'; did you mean 'fp32'? (choices: bf16, fp16, fp32, tf32)",
        id="unknown precision",
    ),
    pytest.param(
        TOP + "tuning: [documented, tunned]",
        "race.yaml:3: tuning: unknown tuning 'tunned'; did you mean 'tuned'? (choices: documented, tuned)",
        id="unknown tier",
    ),
    pytest.param(
        TOP + "exclude: {tuning: fast}",
        "race.yaml:3: exclude.tuning: unknown tuning 'fast' (choices: documented, tuned)",
        id="unknown tier of an exclusion",
    ),
    pytest.param(
        DATA + "breakdown: true\ntrain: {epochs: 9}",
        "race.yaml:3: breakdown: explains timed steps, and train (line 4) makes the whole study train until it is "
        "over; make two studies of it, or write train in an item of include",
        id="steps explained that are not timed",
    ),
    pytest.param(
        DATA + "include: {workers: 2, schedules: step}",
        "race.yaml:3: include.schedules: varies how a study trains, and this one times steps; add train: {…}",
        id="schedules without a training",
    ),
    pytest.param(
        DATA + "include:\n  workers: 2\n  warmup_epochs: 9\n  train: {epochs: 9}",
        "race.yaml:5: include.warmup_epochs: leaves nothing of 9 epochs; the warm-up is a part of the training",
        id="nothing but a warm-up",
    ),
    pytest.param(
        DATA + "train:\n  epochs: 9\n  warmup_epochs: [2, 3]\n  schedules: [cosine, {name: plateau, patience: 5}]",
        "race.yaml:6: train.schedules.1.patience: with 5, plateau lowers the rate after 7 epochs at the earliest, and "
        "the training has 7 after its warm-up; lower patience, or train longer",
        id="a plateau that never ends",
    ),
    pytest.param(
        DATA + "include:\n- {workers: 2, train: {epochs: 9}}\n- {workers: 4, train: {epochs: 9, seeds: 3}}",
        "race.yaml:5: include.1.train.seeds: is that of the first train (line 4) in all trainings; leave it out here",
        id="two numbers of seeds",
    ),
    pytest.param(
        TOP + "device: gpu",
        "race.yaml:3: device: unknown device 'gpu'; did you mean 'cuda'? (choices: auto, cpu, cuda)",
        id="unknown device",
    ),
    pytest.param(
        TOP + "equivalence:\n  enabld: false",
        "race.yaml:4: equivalence.enabld: unknown key 'enabld'; did you mean 'enabled'? "
        "(allowed keys: enabled, repeats, steps)",
        id="unknown key",
    ),
    pytest.param(
        TOP + "environments: {mxnet: {kind: conda}}",
        "race.yaml:3: environments.mxnet.kind: unknown kind of environment 'conda'; write kind: existing and "
        "python: /path/to/bin/python (choices: core, existing, uv, venv)",
        id="unknown environment kind",
    ),
    pytest.param(
        TOP + "environments:\n  mxnet:\n    kind: existing",
        "race.yaml:4: environments.mxnet: an environment of the kind existing needs python: the path of its "
        "interpreter",
        id="environment without interpreter",
    ),
    pytest.param(
        TOP + "environments: {mxnet: {kind: venv, python: /usr/bin/python3}}",
        "race.yaml:3: environments.mxnet.python: only an environment of the kind existing has an interpreter of its "
        "own",
        id="interpreter without use",
    ),
    pytest.param(
        TOP + "environments: {mxnet: {kind: venv, container: apptainer exec image.sif}}",
        "race.yaml:3: environments.mxnet.container: holds what you installed, and an environment of the kind venv is "
        "made by steptime, outside of it; write kind: existing, or leave the container out",
        id="container of an environment that is made",
    ),
    pytest.param(
        TOP + "environments:\n  mxnet:\n    container: apptainer exec image.sif\n    python: env/bin/python",
        "race.yaml:6: environments.mxnet.python: 'env/bin/python' is sought in the container, which knows no folder of "
        "the study; write its whole path there, or a command, as python3",
        id="relative interpreter in a container",
    ),
    pytest.param(
        TOP + "environments: {mxnet: {container: []}}",
        "race.yaml:3: environments.mxnet.container: begins with no program; write the program and its arguments, as "
        "[apptainer, exec, --nv, IMAGE]",
        id="empty container",
    ),
    pytest.param(
        TOP + "environments: {mxnet: {container: [--nv, image.sif]}}",
        "race.yaml:3: environments.mxnet.container: begins with no program; write the program and its arguments, as "
        "[apptainer, exec, --nv, IMAGE]",
        id="container without a program",
    ),
    pytest.param(
        TOP + "environments: {mxnet: {container: apptainer exec 'image}}",
        "race.yaml:3: environments.mxnet.container: \"apptainer exec 'image\" cannot be split into words (No closing "
        "quotation); close the quote, or write a list of words",
        id="container with an open quote",
    ),
    pytest.param(
        TOP + "environments:\n  mxnet:\n    container: [apptainer, exec, 5]",
        "race.yaml:5: environments.mxnet.container: 5 is not text; put it in quotes if it is meant as one",
        id="number in a container",
    ),
    pytest.param(
        TOP + 'environments: {mxnet: {container: [apptainer, "a\\0b"]}}',
        "race.yaml:3: environments.mxnet.container: 'a\\x00b' holds a control character, which no word of a "
        "command needs",
        id="control character in a container",
    ),
    pytest.param(
        TOP + "environments: {mxnet: {container: true}}",
        "race.yaml:3: environments.mxnet.container: True is neither a value nor a list of values",
        id="container that is not a command",
    ),
    pytest.param("workloads: lenet5\n", "race.yaml: frameworks: is missing; name at least one, as 'steptime list "
                 "frameworks' shows them", id="missing frameworks"),
    pytest.param("workloads: []\nframeworks: pytorch", "race.yaml:1: workloads: is an empty list; name at least one",
                 id="empty list"),
    pytest.param(TOP + "workers:\n", "race.yaml:3: workers: is empty; give it a value, or remove it", id="empty value"),
    pytest.param(TOP + "workers: [1, two]", "race.yaml:3: workers: 'two' is not a whole number", id="no number"),
    pytest.param(TOP + "workers: true", "race.yaml:3: workers: True is not a whole number", id="truth is not a number"),
    pytest.param(
        TOP + "workers: '1,2,4'",
        "race.yaml:3: workers: '1,2,4' is not a whole number; several are a list, as [1, 2, 4]",
        id="list as text",
    ),
    pytest.param(
        TOP + "workers: 1-4",
        "race.yaml:3: workers: '1-4' is not a whole number; several are a list, as [1, 4]",
        id="range",
    ),
    pytest.param(
        TOP + "workers: {min: 1, max: 4}",
        "race.yaml:3: workers: {'min': 1, 'max': 4} is not a whole number; several are a list, as [1, 4]",
        id="ends of a range",
    ),
    pytest.param(TOP + "workers: 1.5", "race.yaml:3: workers: 1.5 is not a whole number", id="broken number"),
    pytest.param(TOP + "workers: [1,\n 0]", "race.yaml:4: workers: 0 is too small; the smallest is 1", id="too small"),
    pytest.param(TOP + "optimizer: {momentum: 1}", "race.yaml:3: optimizer.momentum: 1 is too large; it must be less "
                 "than 1", id="too large"),
    pytest.param(TOP + "optimizer: {learning_rate: .inf}",
                 "race.yaml:3: optimizer.learning_rate: inf is not a finite number", id="infinite"),
    pytest.param(TOP + "equivalence: {enabled: yes}",
                 "race.yaml:3: equivalence.enabled: 'yes' is neither true nor false", id="yes"),
    pytest.param(TOP + "question: 5", "race.yaml:3: question: 5 is not text; put it in quotes if it is meant as one",
                 id="number for text"),
    pytest.param("workloads: lenet5\nframeworks: {pytorch: {strategies: fsdp}, jax: {}}",
                 "race.yaml:2: frameworks: {'pytorch': {'strategies': 'fsdp'}, 'jax': {}} is a mapping and not text; "
                 "if its keys are meant, write pytorch, jax alone, and strategies as keys of the study",
                 id="mapping for names"),
    pytest.param(TOP + "launcher: {slurm: {}}", "race.yaml:3: launcher: {'slurm': {}} is a mapping and not text; if "
                 "its keys are meant, write slurm alone", id="mapping for a name"),
    pytest.param(TOP + "strategies: [allreduce: {bucket_mb: 25}]",
                 "race.yaml:3: strategies.0: {'allreduce': {'bucket_mb': 25}} is a mapping and not text; if its keys "
                 "are meant, write allreduce alone", id="mapping in a list"),
    pytest.param(TOP + "strategies: [[allreduce], ps_sync]", "race.yaml:3: strategies: ['allreduce'] is a list "
                 "inside a list; write its names beside the others", id="list in a list"),
    pytest.param(TOP + "steps: 100", "race.yaml:3: steps: 100 is not a mapping; it takes the keys warmup, min, max "
                 "({min: 100, max: 100} for exactly 100)", id="no mapping"),
    pytest.param(TOP + "launches: 2", "race.yaml:3: launches: 2 is not a mapping; it takes the keys min, max, forks "
                 "({min: 2, max: 2} for exactly 2)", id="a count in place of a range"),
    pytest.param(TOP + "launches: many", "race.yaml:3: launches: 'many' is not a mapping; it takes the keys min, max, "
                 "forks",
                 id="a word in place of a range"),
    pytest.param(TOP + "target: 1 percent", "race.yaml:3: target: '1 percent' is not a share; write for example 5% or "
                 "0.05", id="no share"),
    pytest.param(TOP + "target: 1", "race.yaml:3: target: 1 is too large; the largest is 0.5", id="share above half"),
    pytest.param(TOP + "budget: 3",
                 "race.yaml:3: budget: 3 has no unit; write 3s or 3m", id="budget without a unit"),
    pytest.param(TOP + "budget: soon",
                 "race.yaml:3: budget: 'soon' is not a duration; write for example 90s, 8m, 2ms or 50us",
                 id="no duration"),
    pytest.param(TOP + "version: 2", "race.yaml:3: version: version 2 is not known; this steptime reads version 1",
                 id="other version"),
    pytest.param(TOP + "name: a/b",
                 "race.yaml:3: name: 'a/b' is not a name: it starts with a letter or digit and "
                 "continues with letters, digits, '.', '_', '-'", id="name that is not a file name"),
    pytest.param(
        "frameworks: pytorch\nworkloads:\n- name: lenet5\n  image: [1, 2, 3]",
        "race.yaml:4: workloads.0.image: [1, 2, 3] is not an image size; write a side in pixels, or [height, width]",
        id="image size",
    ),
    pytest.param(
        TOP + "batch_per_worker: 64\nglobal_batch: 128",
        "race.yaml:4: global_batch: excludes batch_per_worker; keep one: batch_per_worker for weak scaling, "
        "global_batch for strong scaling (on the command line, KEY=null takes a key away)",
        id="two batches",
    ),
    pytest.param(
        TOP + "workers: [1, 2, 3, 4]\nglobal_batch: [12, 10]",
        "race.yaml:4: global_batch: a global batch of 10 cannot be shared equally by 3 or 4 workers",
        id="uneven batch",
    ),
    pytest.param(
        TOP + "launches: {min: 5, max: 4}",
        "race.yaml:3: launches.min: min (5 launches) must not exceed max (4)",
        id="empty range",
    ),
    pytest.param(
        TOP + "steps: {max: 9}",
        "race.yaml:3: steps.max: min (10 steps) must not exceed max (9)",
        id="range emptied by a default",
    ),
    pytest.param(
        "frameworks: pytorch\nloaders: native\nworkloads:\n- {name: lenet5, dataset: digits}\n- resnet50",
        "race.yaml:5: workloads.1: has no dataset, which the loader 'native' reads; name one, or use the loader "
        "synthetic",
        id="native loader without dataset",
    ),
    pytest.param(
        TOP + "exclude:\n- strategy: single",
        "race.yaml:4: exclude.0.strategy: unknown key 'strategy'; did you mean 'strategies'? (docs/study-keys.md "
        "has all keys)",
        id="exclusion of an unknown axis",
    ),
    pytest.param(TOP + "environment_names: [old]", "race.yaml:3: environment_names: unknown named environment 'old' "
                 "(choices: none)", id="environment without any named"),
    pytest.param(TOP + "exclude: [{}]", "race.yaml:3: exclude.0: names no axis; an empty exclusion would drop every "
                 "combination", id="empty exclusion"),
    pytest.param(TOP + "include: [{}]", "race.yaml:3: include.0: names no axis; it would add nothing to the study",
                 id="empty inclusion"),
    pytest.param(
        TOP + "include: {strategies: alreduce}",
        "race.yaml:3: include.strategies: unknown strategy 'alreduce'; did you mean 'allreduce'? "
        "(choices: all, allreduce, auto, ps_sync, single)",
        id="unknown name in include",
    ),
    pytest.param(
        TOP + "options:\n  pytorch:\n    bucket: 1",
        "race.yaml:5: options.pytorch.bucket: unknown option of pytorch 'bucket'; did you mean 'bucket_mb'? "
        "(choices: bucket_mb, compile, layout, momentum, nudges, rate, shards, threads)",
        id="unknown option",
    ),
    pytest.param(TOP + "options: {mxnet: {bucket: 1}}", "race.yaml:3: options.mxnet.bucket: mxnet has no options",
                 id="framework without options"),
    pytest.param(
        TOP + "options: {caffe: {}}",
        "race.yaml:3: options.caffe: unknown framework 'caffe' (choices: mxnet, pytorch)",
        id="options of an unknown framework",
    ),
    pytest.param(TOP + "options: {pytorch: {bucket_mb: [1, big]}}", "race.yaml:3: options.pytorch.bucket_mb: 'big' is "
                 "not a number, as bucket_mb needs", id="option that is not a number"),
    pytest.param(TOP + "options: {pytorch: {threads: 1.5}}", "race.yaml:3: options.pytorch.threads: 1.5 is not a whole "
                 "number, as threads needs", id="option that is not a whole number"),
    pytest.param(TOP + "options: {pytorch: {compile: 1}}", "race.yaml:3: options.pytorch.compile: 1 is not true or "
                 "false, as compile needs", id="option that is not a truth"),
    pytest.param(
        TOP + "options: {pytorch: {layout: nhcw}}",
        "race.yaml:3: options.pytorch.layout: unknown value of layout 'nhcw'; did you mean 'nhwc'? "
        "(choices: nchw, nhwc)",
        id="option out of its choices",
    ),
    pytest.param(TOP + "options: {pytorch: {shards: [1, 0]}}", "race.yaml:3: options.pytorch.shards: shards must be at "
                 "least 1 and at most 1024, not 0", id="option below its minimum"),
    pytest.param(TOP + "options: {pytorch: {shards: 1025}}", "race.yaml:3: options.pytorch.shards: shards must be at "
                 "least 1 and at most 1024, not 1025", id="option over its maximum"),
    pytest.param(TOP + "options: {pytorch: {rate: 0}}", "race.yaml:3: options.pytorch.rate: rate must be above 0, not "
                 "0", id="option at a bound that it may come near"),
    pytest.param(TOP + "options: {pytorch: {momentum: [-1, 0, 0.5, 1]}}", "race.yaml:3: options.pytorch.momentum: "
                 "momentum must be -1, or at least 0 and below 1, not 1", id="option beside its bounds"),
    pytest.param(TOP + "options: {pytorch: {nudges: [3@0-1, garbage]}}", "race.yaml:3: options.pytorch.nudges: nudges "
                 "cannot be 'garbage'; write for example 'none' or '3@0-1'", id="option of another form"),
    pytest.param(TOP + "exclude: {options: {pytorch: {shards: 0}}}", "race.yaml:3: exclude.options.pytorch.shards: "
                 "shards must be at least 1 and at most 1024, not 0", id="option that an exclusion names"),
    pytest.param(TOP + "breakdown: yes", "race.yaml:3: breakdown: 'yes' is neither true nor false nor a mapping; it "
                 "takes the keys launches, seconds", id="yes for true"),
    pytest.param(TOP + "optimizer: 3", "race.yaml:3: optimizer: 3 is neither a name nor a mapping; it takes the keys "
                 "name, learning_rate, momentum, weight_decay, decayed, clip_norm, beta1, beta2, epsilon, "
                 "trust_coefficient",
                 id="number for a name"),
    pytest.param(TOP + "version: true",
                 "race.yaml:3: version: version 'true' is not known; this steptime reads version 1",
                 id="truth is not a version"),
    pytest.param(TOP + "launches: {min:\xa03}", "race.yaml:3: launches.'min:\\xa03': no-break space ('\\xa0') where "
                 "YAML needs a plain one; retype it", id="no-break space behind a key"),
    pytest.param(TOP + "seed: 1\nname: a\nseed: 2", "race.yaml:5: seed: is here and on line 3; a key may occur "
                 "once", id="repeated key"),
    pytest.param(TOP + "equivalence: {repeats: 1, steps: 1, repeats: 2}",
                 "race.yaml:3: equivalence.repeats: is here and on line "
                 "3; a key may occur once", id="repeated key inside"),
    pytest.param(TOP + "question: !!python/object/apply:os.system [ls]", "race.yaml:3: question: the tag "
                 "!!python/object/apply:os.system is not allowed; a study holds plain values only", id="tag"),
    pytest.param(TOP + "? [a]\n: 1", "race.yaml: line 3 has a list or mapping as a key; a key is a name",
                 id="list as a key"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), ONE_MISTAKE)
def test_a_mistake_is_one_sentence_with_its_line(mistakes, text, sentence):
    assert mistakes(text) == [sentence]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("workloads: lenet5\nframework: pytorch", "frameworks"),
        ("workload: lenet5\nframeworks: pytorch", "workloads"),
        (TOP + "paper: {titel: x, authors: y, year: 2018, address: https://example.org}", "title"),
    ],
)
def test_a_mistyped_key_is_not_missing_as_well(mistakes, text, meant):
    (sentence,) = mistakes(text)
    assert f"did you mean '{meant}'?" in sentence


NO_YAML = [
    pytest.param(TOP + "equivalence:\n\tsteps: 1",
                 "race.yaml:4: not valid YAML: a tab is where spaces are needed; indent "
                 "with spaces", id="tab"),
    pytest.param(TOP + "question: who: me", "race.yaml:3: not valid YAML: a second colon in one line; put a value that "
                 "holds ': ' in quotes", id="colon"),
    pytest.param(TOP + "seed: 7\n  budget: 2m", "race.yaml:4: not valid YAML: it is indented further than the line "
                 "above; keys of one mapping begin in one column", id="indented"),
    pytest.param(TOP + "seed 7\nbudget: 2m", "race.yaml:3: not valid YAML: a key without its colon; write 'key: "
                 "value', with a space after the colon", id="no colon"),
    pytest.param(TOP + "seed:7\nbudget: 2m", "race.yaml:3: not valid YAML: a key without its colon; write 'key: "
                 "value', with a space after the colon", id="no space"),
    pytest.param(TOP + "question: 'q\nbudget: 2m", "race.yaml:3: not valid YAML: the quote that begins here does not "
                 "end", id="open quote"),
    pytest.param(TOP + "launches:\n  min:\xa03\n  max: 4",
                 "race.yaml:4: not valid YAML: no-break space ('\\xa0') where YAML needs a plain one; retype it",
                 id="no-break space"),
    pytest.param(TOP + "launches:\n\u3000 min: 3: 4",
                 "race.yaml:4: not valid YAML: ideographic space ('\\u3000') where YAML needs a plain one; "
                 "retype it",
                 id="ideographic space"),
    pytest.param(TOP + "question: a\xa0b: c",
                 "race.yaml:3: not valid YAML: a second colon in one line; put a value that holds ': ' in quotes",
                 id="no-break space in a text"),
    pytest.param(TOP + "workers: [1, 2", "race.yaml:3: not valid YAML: while parsing a flow sequence: expected ',' or "
                 "']', but got '<stream end>'", id="open bracket"),
    pytest.param(TOP + "---\na: 1", "race.yaml:3: not valid YAML: a second document ('---') begins; one file holds one "
                 "study", id="two documents"),
    pytest.param(TOP + "seed: *x", "race.yaml:3: not valid YAML: found undefined alias 'x'", id="unknown alias"),
    pytest.param(TOP + "question: a\x01b", "race.yaml:3: not valid YAML: it holds the unprintable character '\\x01'",
                 id="control character"),
    pytest.param("", "race.yaml: the file is empty; a study needs at least workloads and frameworks", id="empty"),
    pytest.param("# nothing\n", "race.yaml: the file is empty; a study needs at least workloads and frameworks",
                 id="comment only"),
    pytest.param("\n- lenet5", "race.yaml:2: the file holds a list or a value; a study is a mapping of keys such as "
                 "workloads", id="list"),
    pytest.param(TOP + "question: " + "[" * 3000, "race.yaml: values are nested too deeply; a study needs five levels "
                 "at most", id="deep"),
    pytest.param(TOP + "include: &a [*a]", "race.yaml:3: its aliases repeat more values than a study can have",
                 id="alias of itself"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), NO_YAML)
def test_what_is_no_yaml_is_said_with_its_line(mistakes, text, sentence):
    assert mistakes(text) == [sentence]


def test_a_file_of_aliases_that_means_a_billion_values_is_refused(mistakes):
    levels = [f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]" for level in range(1, 10)]

    (sentence,) = mistakes("l0: &l0 [x]\n" + "\n".join(levels))

    assert sentence.endswith("its aliases repeat more values than a study can have")


def test_ten_mistakes_are_all_reported_in_the_order_of_their_lines(mistakes):
    text = """\
version: 3
workloads: [lenet5, vgg99]
frameworks: [pytroch]
strategies: gossip
workers: [-1]
precision: fp8
target: much
launches: {min: 9, max: 3}
options: {pytorch: {bucket_mb: x}}
colour: red
"""

    lines = [sentence.split(":")[1] for sentence in mistakes(text)]

    assert lines == ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]


def test_a_mistake_in_one_item_does_not_hide_one_in_its_neighbour(mistakes):
    found = mistakes("frameworks: [pytroch, mxnett]\nworkloads: {name: lenet, image: big}")

    assert [sentence.split("; ")[0] for sentence in found] == [
        "race.yaml:1: frameworks: unknown framework 'pytroch'",
        "race.yaml:1: frameworks: unknown framework 'mxnett'",
        "race.yaml:2: workloads.image: 'big' is not an image size",
        "race.yaml:2: workloads.name: unknown workload 'lenet'",
    ]


def test_reading_makes_no_object_and_calls_nothing(mistakes, tmp_path):
    victim = tmp_path / "touched"

    mistakes(TOP + f"question: !!python/object/apply:pathlib.Path.touch [{victim}]")

    assert not victim.exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("threads_per_worker: 1000000000", "1000000000 is too large; the largest is 1024"),
        ("workers: 4096", "4096 is too large; the largest is 1024"),
        ("seed: 4294967296", "4294967296 is too large"),
        (f"seed: 0x{'f' * 5000}", "is too large a number"),
        ("time_limit: 1e300", "1e+300 is too large"),
        (f"include: {'[' * 400}{']' * 400}", "nested too deeply"),
        (f"include: {'[' * 100}{']' * 100}", "race.yaml:3: values are nested too deeply"),
    ],
)
def test_a_value_beyond_every_use_is_refused_with_the_limit(line, said, tmp_path, known):
    path = tmp_path / "race.yaml"
    path.write_text(f"workloads: lenet5\nframeworks: pytorch\n{line}\n")
    with pytest.raises(StudyError, match=re.escape(said)):
        read_study(path, [], known)


FOLDERS = {
    "one workload": ("{name: lenet5, dataset: ./nowhere}", ["no folder {}/nowhere"]),
    "a list": (
        "[{name: lenet5, dataset: ./own}, {name: mlp, dataset: ./nowhere/deeper}]",
        ["no folder {}/nowhere/"],
    ),
    "its validation": ("{name: lenet5, dataset: ./own, validation: ./gone}", ["no folder {}/gone"]),
    "both": ("{name: lenet5, dataset: ./nowhere, validation: ./gone}", ["no folder {}/nowhere", "no folder {}/gone"]),
    "neither": ("{name: lenet5, dataset: ./own}", []),
    "one built in": ("{name: lenet5, dataset: digits}", []),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_folders_of_data_that_are_not_there_are_told_with_the_other_mistakes(tmp_path, case):
    workloads, expected = FOLDERS[case]
    (tmp_path / "own").mkdir()
    (tmp_path / "study.yaml").write_text(f"question: x\nworkloads: {workloads}\nframeworks: pytorch\nworkers: [0]\n")
    with pytest.raises(StudyError) as error:
        read_study(tmp_path / "study.yaml")
    lines = str(error.value).splitlines()
    folders = [line for line in lines if "no folder" in line]
    assert len(folders) == len(expected)
    assert all(text.format(tmp_path) in line for text, line in zip(expected, folders, strict=True))
    assert all("study.yaml:2: workloads" in line and f"its path exists up to {tmp_path}" in line for line in folders)
    assert any("study.yaml:4: workers" in line for line in lines)
