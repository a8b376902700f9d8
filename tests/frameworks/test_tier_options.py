"""The tiers of a framework's options in its manifest: ``[tuned]``, its overrides, and every mistake in them."""

from pathlib import Path

import pytest

from steptime.catalog.manifest import Manifest, load_manifest

MANIFEST = """
title = "Planted"
distribution = "planted"
python = ["3.11"]
devices = ["cpu", "cuda"]

[strategies.single]
max_workers = 1

[strategies.allreduce]
implementation = "steptime's exchange over MPI"

[strategies.fsdp]

[options.compile]
help = "compile the whole step"
type = "bool"
default = false

[options.bucket_mb]
help = "gradients that travel together"
type = "float"
default = 25.0
strategies = ["allreduce"]

[options.layout]
help = "of images in memory"
type = "str"
default = "first"
choices = ["first", "last"]
"""


def planted(folder: Path, tuned: str) -> Manifest:
    path = folder / "framework.toml"
    path.write_text(MANIFEST + tuned)
    return load_manifest(path)


def mistakes(folder: Path, tuned: str) -> str:
    with pytest.raises(ValueError, match="validation error") as caught:
        planted(folder, tuned)
    return str(caught.value)


def test_without_a_table_both_tiers_are_the_defaults(tmp_path):
    manifest = planted(tmp_path, "")
    documented = {"compile": False, "bucket_mb": 25.0, "layout": "first"}
    assert manifest.tier_options("documented", "allreduce", "cpu") == documented
    assert manifest.tier_options("tuned", "allreduce", "cpu") == documented


def test_a_tuned_value_stands_in_the_tier_tuned_alone(tmp_path):
    manifest = planted(tmp_path, "[tuned]\ncompile = true\n")
    assert manifest.tier_options("tuned", "single", "cpu") == {"compile": True, "layout": "first"}
    assert manifest.tier_options("documented", "single", "cpu") == {"compile": False, "layout": "first"}


def test_a_tuned_option_is_left_out_where_it_means_nothing(tmp_path):
    manifest = planted(tmp_path, "[tuned]\nbucket_mb = 100.0\n")
    assert "bucket_mb" not in manifest.tier_options("tuned", "single", "cpu")


def test_a_whole_number_for_an_option_of_any_number_is_the_number_of_the_options_type(tmp_path):
    value = planted(tmp_path, "[tuned]\nbucket_mb = 100\n").tier_options("tuned", "allreduce", "cpu")["bucket_mb"]
    assert repr(value) == "100.0"


@pytest.mark.parametrize(
    ("strategy", "device", "layout"),
    [("single", "cpu", "first"), ("single", "cuda", "last"), ("fsdp", "cuda", "first"), ("fsdp", "cpu", "first")],
)
def test_a_strategys_override_wins_over_a_devices(tmp_path, strategy, device, layout):
    tuned = (
        '[tuned]\ncompile = true\n[tuned.devices.cuda]\nlayout = "last"\n[tuned.strategies.fsdp]\nlayout = "first"\n'
    )
    assert planted(tmp_path, tuned).tier_options("tuned", strategy, device)["layout"] == layout


def test_every_wrong_key_is_in_one_error(tmp_path):
    text = mistakes(
        tmp_path,
        '[tuned]\ncompil = true\nlayout = "middle"\nbucket_mb = "wide"\n'
        "[tuned.strategies.zero1]\ncompile = true\n[tuned.strategies.fsdp]\nbucket_mb = 1.0\n"
        "[tuned.devices.tpu]\ncompile = true\n",
    )
    assert "unknown option 'compil'; did you mean 'compile'?" in text
    assert "unknown value of layout 'middle' (choices: first, last)" in text
    assert "'wide' is not a number, as bucket_mb needs" in text
    assert "[tuned.strategies.zero1]: unknown strategy 'zero1'" in text
    assert "[tuned.strategies.fsdp] bucket_mb: the option means nothing under 'fsdp'" in text
    assert "[tuned.devices.tpu]: unknown device 'tpu'" in text


def test_a_tuned_value_that_is_the_default_is_refused(tmp_path):
    assert "[tuned] compile: False is the option's default; leave it out" in mistakes(
        tmp_path, "[tuned]\ncompile = false\n"
    )


def test_an_override_may_go_back_to_the_default(tmp_path):
    manifest = planted(tmp_path, "[tuned]\ncompile = true\n[tuned.strategies.fsdp]\ncompile = false\n")
    assert manifest.tier_options("tuned", "fsdp", "cpu")["compile"] is False


def test_a_strategy_says_who_implements_it_where_the_framework_does_not(tmp_path):
    strategies = planted(tmp_path, "").strategies
    assert strategies["allreduce"].implementation == "steptime's exchange over MPI"
    assert strategies["fsdp"].implementation == ""


LOSSY = """
[options.compression]
help = "of what is sent"
type = "str"
default = "none"
choices = ["none", "fp16", "2bit"]
strategies = ["allreduce"]
rounds = ["fp16"]
alters = ["2bit"]
"""


@pytest.mark.parametrize(("value", "reason"), [("none", None), ("fp16", "rounded"), ("2bit", "cannot hold")])
def test_options_that_change_what_is_computed_say_why_their_trials_have_no_rank(tmp_path, value, reason):
    found = planted(tmp_path, LOSSY).unranked({"compression": value, "compile": False})
    assert found is None if reason is None else found.startswith(f"compression: {value}") and reason in found


@pytest.mark.parametrize(("value", "altering"), [("fp16", None), ("2bit", "compression: 2bit")])
def test_only_values_that_alter_the_training_keep_a_trial_from_the_check(tmp_path, value, altering):
    assert planted(tmp_path, LOSSY).altering({"compression": value}) == altering


@pytest.mark.parametrize("value", ["fp16", "2bit"])
def test_the_tier_tuned_may_not_change_what_is_computed(tmp_path, value):
    assert "changes what is computed" in mistakes(tmp_path, LOSSY + f'[tuned]\ncompression = "{value}"\n')
