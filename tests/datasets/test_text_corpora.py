"""A user's own text: what is read of a folder, what it is made into, and what is said of bad text."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from steptime.catalog.workloads.table import build_workload
from steptime.datasets.builtins import PYTHONS
from steptime.datasets.corpus import Reading, scan_corpus
from steptime.datasets.creation import run_maker
from steptime.datasets.dataset import Dataset
from steptime.datasets.tokens import (
    TOKENIZER,
    TOKENIZER_REQUIREMENTS,
    TOKENIZER_VERIFY,
    find_rows,
    make_rows,
    mapped_row,
)
from steptime.datasets.validation import loader_json
from steptime.environments.kinds import EnvironmentSpec, create
from steptime.errors import DatasetError, EnvironmentFailure
from steptime.worker.batches import TokenSamples

TEXTS = ["first", "zweiter ä", "the third"]
END = 256
PLAIN = Reading()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder of three documents: two files, and a line of JSON."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(TEXTS[0], encoding="utf-8")
    (folder / "b.txt").write_text(TEXTS[1], encoding="utf-8")
    (folder / "c.jsonl").write_text(json.dumps({"text": TEXTS[2], "id": 1}) + "\n", encoding="utf-8")
    return folder


def untrained(_: Path, __: int) -> None:
    raise AssertionError


def made(folder: Path, cache: Path, reading: Reading = PLAIN) -> Dataset:
    return make_rows(scan_corpus(str(folder), cache, reading), cache, untrained)


def row(dataset: Dataset) -> list[int]:
    return np.fromfile(dataset.path, "<u2").tolist()


def documents(dataset: Dataset) -> list[bytes]:
    """Return the documents of a row, by the ends behind them."""
    tokens = row(dataset)
    assert tokens[-1] == END
    ends = [place for place, token in enumerate(tokens) if token == END]
    return [bytes(tokens[begin + 1 : end]) for begin, end in zip([-1, *ends], ends, strict=False)]


def test_a_row_has_the_bytes_of_every_document_and_an_end_behind_each(corpus: Path, cache: Path) -> None:
    assert sorted(documents(made(corpus, cache))) == sorted(text.encode() for text in TEXTS)


def test_documents_are_shuffled_alike_every_time(corpus: Path, cache: Path, tmp_path: Path) -> None:
    (corpus / "d.jsonl").write_text("".join(json.dumps({"text": f"{each}"}) + "\n" for each in range(50)))
    first, second = (made(corpus, place) for place in (cache, tmp_path / "other"))

    assert row(first) == row(second)
    assert documents(first) != sorted(documents(first))


def test_what_was_made_is_found_again_until_a_file_changes(corpus: Path, cache: Path) -> None:
    made(corpus, cache)
    assert find_rows(scan_corpus(str(corpus), cache, PLAIN), cache) is not None

    (corpus / "a.txt").write_text("changed")
    assert find_rows(scan_corpus(str(corpus), cache, PLAIN), cache) is None


def test_the_contents_name_tokens_vocabulary_and_documents(corpus: Path, cache: Path) -> None:
    (corpus / "notes.md").write_text("x")
    (corpus / "c.jsonl").write_text('{"text": "the third"}\n{"text": ""}\n')
    contents = scan_corpus(str(corpus), cache, PLAIN).contents

    assert contents is not None
    assert contents.in_words("mine") == (
        "mine: 27 tokens of a vocabulary of 257 in 3 documents; left out: 1 md, 1 empty document"
    )
    assert contents == made(corpus, cache).contents


@pytest.mark.parametrize(
    "names", [("train.txt", "val.txt"), ("train/a.txt", "validation/b.txt"), ("train-00000-of-00002.txt", "test.txt")]
)
def test_text_for_validation_is_apart(names: tuple[str, str], cache: Path, tmp_path: Path) -> None:
    for name, text in zip(names, TEXTS, strict=False):
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(text, encoding="utf-8")
    (tmp_path / "mine" / "loose.txt").write_text("loose")
    dataset = made(tmp_path / "mine", cache)

    assert documents(dataset) == [TEXTS[0].encode()]
    assert dataset.validation is not None
    assert documents(dataset.validation) == [TEXTS[1].encode()]
    assert "1 in the folder itself, not used" in dataset.contents.in_words("mine")


def test_a_token_file_is_read_as_nanogpt_writes_it(cache: Path, tmp_path: Path) -> None:
    tokens = np.array([50256, 3, 7, 50256], np.uint16)
    tokens.tofile(tmp_path / "train.bin")
    dataset = made(tmp_path / "train.bin", cache)

    assert (row(dataset), dataset.samples, dataset.classes) == (tokens.tolist(), 4, 0)


@pytest.mark.parametrize("loader", ["native", "cached"])
def test_workers_take_the_rows_sequences(loader: str, corpus: Path, cache: Path) -> None:
    dataset = made(corpus, cache)
    tokens = row(dataset)
    settings = loader_json(dataset, (5,), loader)

    inputs, targets = TokenSamples(settings["dataset"], (5,)).batch(np.array([2, 0]))

    assert inputs.tolist() == [tokens[10:15], tokens[:5]]
    assert targets.tolist() == [tokens[11:16], tokens[1:6]]
    assert settings["dataset"].get("mapped", False) == (loader == "cached")


def test_a_built_in_row_can_be_mapped(text: Dataset, cache: Path) -> None:
    mapped = mapped_row(text, cache)

    with np.load(text.path) as file:
        assert np.array_equal(np.memmap(mapped.path, "<u2", "r"), file["tokens"])
    assert mapped_row(mapped, cache) == mapped


BAD = {
    "latin1.txt": (b"caf\xe9 au lait", "is not UTF-8: byte 0xe9 at offset 3"),
    "empty.txt": (b" \n", "is empty"),
    "none.jsonl": (b'{"text": ""}\n\n', "its 1 lines have no text"),
    "lines.jsonl": (b'{"text": "ok"}\nno json\n', "line 2: is not JSON"),
    "list.jsonl": (b"[1]", "line 1: is JSON, but no object with a field 'text'"),
    "field.jsonl": (b'{"text": "ok"}\n{"body": "x"}', "line 2: has no field 'text' (it has 'body')"),
    "number.jsonl": (b'{"text": 4}', "line 1: its field 'text' is not text"),
    "half.jsonl": (b'{"text": "\\ud800"}', "line 1: its field 'text' has half a surrogate pair"),
    "deep.jsonl": (b"[" * 100_000, "line 1: is not JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_text_is_named_with_its_place(name: str, corpus: Path, cache: Path) -> None:
    content, said = BAD[name]
    (corpus / name).write_bytes(content)

    with pytest.raises(DatasetError) as caught:
        scan_corpus(str(corpus), cache, PLAIN)
    assert str(corpus / name) in str(caught.value)
    assert said in str(caught.value)


def test_all_bad_text_of_a_folder_is_named_at_once(corpus: Path, cache: Path) -> None:
    for name, (content, _) in BAD.items():
        (corpus / name).write_bytes(content)

    with pytest.raises(DatasetError) as caught:
        scan_corpus(str(corpus), cache, PLAIN)
    assert [name for name in BAD if name not in str(caught.value)] == []


def test_a_link_that_leaves_the_folder_is_refused_and_one_within_it_is_not(corpus: Path, cache: Path) -> None:
    (corpus / "within.txt").symlink_to(corpus / "a.txt")
    assert scan_corpus(str(corpus), cache, PLAIN).training.documents == 4

    (corpus.parent / "secret.txt").write_text("secret")
    (corpus / "out.txt").symlink_to(corpus.parent / "secret.txt")
    with pytest.raises(DatasetError, match=r"out\.txt: leads out of the folder, to .*secret\.txt"):
        scan_corpus(str(corpus), cache, PLAIN)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\0\0\0", "3 bytes, an odd number"), (b"", "is empty"), (b"\1\0\0\2\3\0", "token 512 at place 1 is outside")],
)
def test_bad_token_files_are_named(content: bytes, said: str, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(content)

    with pytest.raises(DatasetError, match=said):
        scan_corpus(str(tmp_path), cache, Reading(vocabulary=300))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", r"no file or folder .*nowhere"),
        ("photo.png", r"must be a \.txt, \.jsonl or \.bin file"),
        ("images", r"has no \.txt, \.jsonl or \.bin files"),
        ("deeper", r"its text lies in deeper folders"),
        ("mixed", r"has text and files of tokens"),
    ],
)
def test_what_is_no_corpus_is_refused(name: str, said: str, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "photo.png").touch()
    for place in ("images", "deeper/inside", "mixed"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "deeper" / "inside" / "a.txt").write_text("text")
    (tmp_path / "mixed" / "a.txt").write_text("text")
    (tmp_path / "mixed" / "b.bin").write_bytes(b"ab")

    with pytest.raises(DatasetError, match=said):
        scan_corpus(str(tmp_path / name), cache, PLAIN)


@pytest.mark.parametrize(
    ("file", "reading", "said"),
    [
        ("a.txt", Reading(vocabulary=500), "bytes have a vocabulary of 257"),
        ("a.bin", Reading("bpe"), "holds tokens already"),
    ],
)
def test_a_vocabulary_that_means_nothing_is_refused(
    file: str, reading: Reading, said: str, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / file).write_bytes(b"text")

    with pytest.raises(DatasetError, match=said):
        scan_corpus(str(tmp_path / file), cache, reading)


def test_text_shorter_than_a_sequence_is_refused(corpus: Path, cache: Path) -> None:
    with pytest.raises(DatasetError, match="has 27 tokens, fewer than a sequence of 64"):
        loader_json(made(corpus, cache), build_workload("gpt2_tiny").input_shape, "native")


@pytest.fixture(scope="session")
def trainer() -> Path:
    """The Python that trains tokenizers, in the user's cache; takes a download the first time."""
    try:
        return create(EnvironmentSpec("data-bpe", TOKENIZER_REQUIREMENTS, PYTHONS, TOKENIZER_VERIFY)).interpreter
    except EnvironmentFailure as failure:
        pytest.skip(f"the packages that train tokenizers cannot be installed here: {failure}")


def test_a_trained_tokenizer_is_the_same_every_time_and_loses_nothing(
    trainer: Path, corpus: Path, tmp_path: Path
) -> None:
    (corpus / "d.txt").write_text("the same words, the same words again, ä and the <|endoftext|> of the words " * 9)

    def train(folder: Path, vocabulary: int) -> None:
        run_maker(TOKENIZER, "mine", folder, trainer, {"vocabulary": vocabulary})

    caches = [tmp_path / place for place in ("one", "two")]
    first, second = (make_rows(scan_corpus(str(corpus), cache, Reading("bpe", 300)), cache, train) for cache in caches)
    written = [{path.name: path.read_bytes() for path in each.path.parent.iterdir()} for each in (first, second)]
    assert written[0] == written[1]
    tokens = row(first)
    assert tokens.count(299) == 4
    assert max(tokens) == 299
    program = (
        "import json, sys; from tokenizers import Tokenizer; "
        "print(json.dumps(Tokenizer.from_file(sys.argv[1]).decode(json.loads(sys.argv[2]))))"
    )
    ends = [place for place, token in enumerate(tokens) if token == 299]
    longest = max((tokens[a + 1 : b] for a, b in zip([-1, *ends], ends, strict=False)), key=len)
    said = subprocess.run(
        [trainer, "-c", program, first.path.parent / "tokenizer.json", json.dumps(longest)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(said.stdout) == (corpus / "d.txt").read_text()
    assert len(longest) < len((corpus / "d.txt").read_bytes()) / 2


def test_every_way_to_read_a_text_has_a_name_of_its_own():
    readings = [Reading(*tokens, text_field=field) for tokens in ((), ("bpe", 300)) for field in ("text", "body")]
    assert [each.name for each in readings] == [
        None,
        "bytes of the field body",
        "bpe 300",
        "bpe 300 of the field body",
    ]
