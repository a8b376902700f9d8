"""The table of flags: one row gives a flag its code in records, its sentence, its meaning and its amount."""

import ast
import dataclasses
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

import steptime
from steptime.analysis.flags import counted
from steptime.flags import (
    FLAGS,
    MEANINGS,
    Flag,
    FlagMeaning,
    NoiseLimit,
    amount,
    flag_in_report,
    flag_text,
    read_stored,
    stored,
    stored_flag_text,
)
from steptime.report.conditions import meanings, notes
from steptime.results.attached_files import AttachedHeader
from steptime.results.noise import flags
from steptime.results.record_kinds import TIMING

sys.path.insert(0, str(Path(__file__).parents[1] / "results"))
from simulated import a_launch, a_store, a_trial

OF_NOISE = {code: flag for code, flag in FLAGS.items() if flag.limit}
OF_RECORDS = {code: flag for code, flag in FLAGS.items() if "{" not in flag.sentence.replace("{detail}", "")}


def filled(flag: Flag) -> str:
    """Return the sentence of a flag with a word for everything that differs."""
    return re.sub(r"\{\w+\}", "a thing: (1 of 2), b", flag.sentence)


def passing(limit: NoiseLimit) -> dict[str, float | None]:
    return {limit.quantity: limit.usual / 2 if limit.fewest else 2 * limit.usual + 1.0}


@pytest.mark.parametrize("code", FLAGS)
def test_a_sentence_in_a_report_is_of_its_own_flag_alone(code):
    assert flag_in_report(filled(FLAGS[code])) is FLAGS[code]
    assert flag_in_report(f"{filled(FLAGS[code])} (2 of 3 launches: 0.3 to 1.5 cores)") is FLAGS[code]


@pytest.mark.parametrize("code", FLAGS)
def test_a_report_explains_every_flag_that_has_a_meaning(code):
    marked = SimpleNamespace(flags=[filled(FLAGS[code])])
    meaning = FLAGS[code].meaning
    assert meanings(marked.flags) == ([meaning] if meaning else [])
    assert notes([marked])[0].startswith(f"{filled(FLAGS[code])} (1 of 1 trial)")


@pytest.mark.parametrize("code", OF_RECORDS)
def test_an_older_record_with_the_sentence_is_read_as_the_code(code):
    detail = "processors, GPUs" if "{detail}" in FLAGS[code].sentence else ""
    sentence = FLAGS[code].sentence.format(detail=detail)
    assert read_stored(sentence) == stored(code, detail)
    assert read_stored(stored(code, detail)) == stored(code, detail)
    assert stored_flag_text(stored(code, detail)) == sentence


@pytest.mark.parametrize("code", OF_RECORDS)
def test_a_flag_that_was_reworded_keeps_its_meaning_in_old_folders(code, monkeypatch):
    old = FLAGS[code].sentence.format(detail="GPUs")
    reworded = dataclasses.replace(FLAGS[code], sentence="other words: {detail}", former=(FLAGS[code].sentence,))
    monkeypatch.setattr("steptime.flags._ROWS", tuple(reworded if f.code == code else f for f in FLAGS.values()))
    monkeypatch.setitem(FLAGS, code, reworded)
    assert stored_flag_text(read_stored(old)).startswith("other words")
    assert flag_in_report(stored_flag_text(read_stored(old))) is reworded


def test_a_flag_of_a_newer_version_is_kept_and_shown_as_it_is():
    assert read_stored("noisy: a moon passed") == stored_flag_text("noisy: a moon passed") == "noisy: a moon passed"
    assert flag_in_report("noisy: a moon passed") is None


@pytest.mark.parametrize("code", OF_NOISE)
def test_the_row_of_noise_raises_its_flag_and_names_its_amount(code):
    limit = OF_NOISE[code].limit
    assert flags(passing(limit), workers=1, cores=1, threads=1) == [code]
    assert bool(amount(code, [passing(limit)])) is bool(limit.unit)
    assert counted([[code], []], [passing(limit), {}])[0].startswith(f"{filled(OF_NOISE[code])} (1 of 2 launches")


@pytest.mark.parametrize("code", OF_RECORDS)
def test_the_store_writes_codes_and_reads_sentences(tmp_path, code):
    trial, detail = a_trial(), "GPUs" if "{detail}" in FLAGS[code].sentence else ""
    store = a_store(tmp_path / "results")
    store.add_trial(trial)
    store.append(a_launch(trial, 0, flags=[stored(code, detail)]))
    store.append(a_launch(trial, 1, flags=[FLAGS[code].sentence.format(detail=detail)]))
    assert [each.flags for each in store.records(TIMING, trial.id)] == [[stored(code, detail)]] * 2


def test_the_header_of_an_attached_run_reads_sentences_too():
    flags_of_a_header = TypeAdapter(AttachedHeader.model_fields["flags"].rebuild_annotation())
    assert flags_of_a_header.validate_python(["noisy: memory was swapped in"]) == ["noisy_swap"]


def test_titles_and_codes_are_of_one_flag_each():
    assert len({meaning.title for meaning in MEANINGS}) == len(MEANINGS)
    assert len({flag.sentence for flag in FLAGS.values()}) == len(FLAGS)
    assert all(re.fullmatch(r"[a-z_]+", code) for code in FLAGS)


def test_no_sentence_of_a_flag_is_typed_a_second_time():
    begins = {flag.sentence.partition("{")[0].strip(" :(") for flag in FLAGS.values()}
    begins = {begin for begin in begins if len(begin.split()) > 2}
    sources = [path for path in Path(steptime.__file__).parent.rglob("*.py") if path.name != "flags.py"]
    typed = {
        (path.name, begin)
        for path in sources
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for begin in begins
        if node.value.startswith(begin)
    }
    assert typed == set()


def test_a_new_row_is_raised_explained_stored_and_read(monkeypatch):
    meaning = FlagMeaning("damp", "It rained.")
    new = Flag("damp", "damp: above 3 of humidity", meaning, NoiseLimit("humidity", 3.0, "cores"))
    monkeypatch.setitem(FLAGS, "damp", new)
    monkeypatch.setattr("steptime.flags._ROWS", (*FLAGS.values(),))
    monkeypatch.setattr("steptime.report.conditions.MEANINGS", (*MEANINGS, meaning))
    noise = {"humidity": 4.0}
    [text] = counted([flags(noise, 1, 1, 1)], [noise])
    assert text == "damp: above 3 of humidity (1 of 1 launches: 4 cores)"
    assert meanings([text]) == [meaning]
    assert read_stored(flag_text("damp")) == "damp"
