"""Every workload of the library meets its contract: a member is tested by being listed."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from steptime.catalog.workloads import table
from steptime.catalog.workloads.kinds import KINDS
from steptime.catalog.workloads.layers import INPUT, Workload
from steptime.catalog.workloads.table import LIBRARY, build_workload
from steptime.errors import WorkloadError

NAMES = list(LIBRARY)
OF_IMAGES = [name for name in NAMES if len(LIBRARY[name].input_shape) == 3]
OF_TOKENS = [name for name in NAMES if LIBRARY[name].of_tokens]
FAMILIES = {
    "chains": {"mlp", "autoencoder", "lenet5", "cifar_cnn", "alexnet", "vgg16"},
    "blocks": {"resnet50", "resnet101", "resnet152"},
    "inception": {"googlenet", "inception_v3"},
    "transformers": {
        "vit_tiny",
        "vit_b16",
        "gpt2_tiny",
        "gpt2",
        "bert_tiny",
        "bert_base",
        "llama_tiny",
        "tinyllama_1b",
    },
}

# From the documents that describe each workload, not computed here.
PUBLISHED = {
    "mlp": 13_714_442,
    "autoencoder": 2_837_314,
    "lenet5": 61_706,
    "cifar_cnn": 85_098,
    "alexnet": 61_100_840,
    "googlenet": 6_624_904,
    "vgg16": 138_357_544,
    "inception_v3": 23_834_568,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vit_tiny": 5_717_416,
    "vit_b16": 86_567_656,
    "gpt2_tiny": 256 * 128 + 64 * 128 + 4 * (12 * 128**2 + 13 * 128) + 2 * 128,
    "gpt2": 124_439_808,
    "llama_tiny": 2 * 256 * 128 + 4 * (128 * 256 + 128**2 + 3 * 128 * 344 + 2 * 128) + 128,
    "tinyllama_1b": 1_100_048_384,
    "bert_tiny": 4_416_698,
    "bert_base": 109_514_298,
}
SMALLEST = {
    "lenet5": 12,
    "cifar_cnn": 15,
    "alexnet": 63,
    "googlenet": 31,
    "vgg16": 32,
    "inception_v3": 75,
    "vit_tiny": 16,
}


@pytest.fixture(params=NAMES)
def usual(request: pytest.FixtureRequest) -> Workload:
    return build_workload(request.param)


def test_every_file_of_the_library_is_listed():
    folder = Path(table.__file__).parent
    files = {path.stem for path in folder.glob("*.py") if f"from {table.__name__} import Entry" in path.read_text()}
    assert files == set(FAMILIES)
    assert set().union(*FAMILIES.values()) == set(LIBRARY)


@pytest.mark.parametrize("name", NAMES)
def test_the_parameters_are_the_published_ones(name):
    assert build_workload(name).parameter_count == LIBRARY[name].published_parameters == PUBLISHED[name]


def test_the_weights_of_the_perceptron_are_the_published_ones():
    weights = [p.count for layer in build_workload("mlp").layers for p in layer.parameters if p.role == "weight"]
    assert sum(weights) == 13_707_264


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_says_where_the_workload_is_from(name):
    entry = LIBRARY[name]
    assert entry.title
    assert any(year in entry.source for year in map(str, range(1990, 2030))) or "cuda-convnet" in entry.source


def test_a_workload_is_named_as_it_is_listed(usual):
    assert usual.name in LIBRARY


def test_the_json_form_survives_writing_and_reading(usual):
    form = usual.to_json()
    assert json.loads(json.dumps(form)) == form


def test_every_kind_is_known(usual):
    assert {layer.kind for layer in usual.layers} <= set(KINDS)


def test_layer_names_are_unique(usual):
    names = [layer.name for layer in usual.layers]
    assert len(set(names)) == len(names)


def test_parameters_are_named_once_and_after_their_layer(usual):
    named = [(layer.name, parameter) for layer in usual.layers for parameter in layer.parameters]
    assert len({parameter.name for _, parameter in named}) == len(named)
    assert all(parameter.name == f"{layer}.{parameter.role}" for layer, parameter in named)


def test_inputs_are_earlier_layers(usual):
    known = {INPUT}
    for layer in usual.layers:
        assert set(layer.inputs) <= known
        known.add(layer.name)


def test_no_output_is_left_unused(usual):
    """A layer that nothing reads would be trained by nothing."""
    read = {source for layer in usual.layers for source in layer.inputs}
    assert [layer.name for layer in usual.layers if layer.name not in read] == [usual.layers[-1].name]


def test_input_shapes_are_those_of_the_inputs(usual):
    shapes = {INPUT: usual.input_shape, **{layer.name: layer.output_shape for layer in usual.layers}}
    for layer in usual.layers:
        assert layer.input_shapes == tuple(shapes[source] for source in layer.inputs)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"autoencoder"} - set(OF_TOKENS)))
def test_the_output_has_one_score_per_class(name):
    assert build_workload(name, classes=7).output_shape == (7,)


@pytest.mark.parametrize("name", OF_TOKENS)
def test_the_output_of_tokens_has_one_score_per_token_and_entry_of_the_vocabulary(name):
    workload = build_workload(name, classes=300, sequence=12)
    assert (workload.input_shape, workload.output_shape) == ((12,), (12, 300))


def test_a_sequence_means_nothing_to_images():
    with pytest.raises(WorkloadError, match="resnet50 takes no tokens"):
        build_workload("resnet50", sequence=12)


def test_an_autoencoder_gives_back_as_many_values_as_it_gets():
    assert build_workload("autoencoder", (1, 8, 8)).output_shape == (64,)


@pytest.mark.parametrize("name", NAMES)
def test_the_check_mode_has_no_dropout(name):
    layers = build_workload(name).to_json(dropout=False)["layers"]
    assert {layer["attributes"]["rate"] for layer in layers if layer["kind"] == "dropout"} <= {0.0}


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "googlenet", "inception_v3", "bert_tiny"])
def test_training_has_the_dropout_of_its_source(name):
    layers = build_workload(name).to_json()["layers"]
    least = 0.1 if name == "bert_tiny" else 0.2
    assert all(layer["attributes"]["rate"] >= least for layer in layers if layer["kind"] == "dropout")
    assert any(layer["kind"] == "dropout" for layer in layers)


@pytest.mark.parametrize("name", ["resnet50", "resnet101", "resnet152", "googlenet"])
def test_small_images_leave_the_parameters_of_convolutional_workloads_alone(name):
    assert build_workload(name, image=(64, 64)).parameter_count == PUBLISHED[name]


@pytest.mark.parametrize(("name", "features"), [("alexnet", 256), ("vgg16", 2048)])
def test_small_images_make_the_first_linear_layer_smaller(name, features):
    workload = build_workload(name, image=(64, 64))
    first = next(layer for layer in workload.layers if layer.kind == "linear")
    assert first.input_shapes == ((features,),)


@pytest.mark.parametrize(("name", "side"), SMALLEST.items())
def test_an_image_one_pixel_too_small_is_refused_with_the_smallest_that_works(name, side):
    build_workload(name, image=(side, side))
    with pytest.raises(WorkloadError, match=rf"layer '.+' .+ the smallest square image that works is {side}x{side}"):
        build_workload(name, image=(side - 1, side - 1))


@pytest.mark.parametrize("name", OF_IMAGES)
def test_images_need_not_be_square(name):
    assert build_workload(name, image=(96, 128)).input_shape[1:] == (96, 128)


@pytest.mark.parametrize("name", ["mlp", "autoencoder"])
def test_images_are_flattened_where_nothing_else_can_be_done_with_them(name):
    assert build_workload(name, (1, 28, 28)).parameter_count == PUBLISHED[name]


@pytest.mark.parametrize("name", OF_IMAGES)
def test_flat_input_is_refused_by_workloads_of_images(name):
    with pytest.raises(WorkloadError, match="use images, usually of"):
        build_workload(name, (784,))


def test_an_unknown_name_is_answered_with_the_nearest_one():
    with pytest.raises(
        WorkloadError, match=r"unknown workload 'resnet5'; did you mean 'resnet50'\? \(choices: alexnet"
    ):
        build_workload("resnet5")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"classes": 0}, "classes must be at least 1, got 0"),
        ({"input_shape": (3, 0, 64)}, r"all positive, got \(3, 0, 64\)"),
        ({"input_shape": (3, 64)}, r"channels, height, width or one length"),
        ({"input_shape": (3, 64, 64), "image": (64, 64)}, "input_shape or image, not both"),
    ],
)
def test_impossible_numbers_are_refused(arguments, said):
    with pytest.raises(WorkloadError, match=said):
        build_workload("resnet50", **arguments)


def test_an_image_size_means_nothing_to_a_perceptron():
    with pytest.raises(WorkloadError, match="no images"):
        build_workload("mlp", image=(28, 28))


def test_residual_workloads_grow_with_their_name():
    depths = [len(build_workload(name).layers) for name in ("resnet50", "resnet101", "resnet152")]
    assert all(shallow < deep for shallow, deep in pairwise(depths))


def test_listing_names_imports_no_workload():
    program = (
        "import sys; from steptime.catalog.workloads.table import LIBRARY; list(LIBRARY);"
        f"print([name for name in {sorted(FAMILIES)} if f'steptime.catalog.workloads.{{name}}' in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert printed.stdout.strip() == "[]"


def test_a_transformer_that_is_given_an_image_names_what_it_takes():
    with pytest.raises(WorkloadError, match="it takes tokens, usually 64"):
        build_workload("gpt2_tiny", (1, 28, 28))
