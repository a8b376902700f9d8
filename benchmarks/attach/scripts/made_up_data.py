"""Small data sets that public scripts train on: texts, pictures, digits, and a language model without any training.

Each function takes the folder in which a script starts and a Python that has the script's packages.
"""

import io
import json
import pickle
import random
import struct
import subprocess
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

WORDS = 400
CLASSES = 10


def _sentences(count: int, seed: int) -> list[str]:
    """Return sentences of words that follow each other as in no language."""
    chosen = random.Random(seed)
    words = [
        "".join(chosen.choice("abcdefghijklmnoprstuvw") for _ in range(chosen.randint(2, 8))) for _ in range(WORDS)
    ]
    return [" ".join(chosen.choice(words) for _ in range(chosen.randint(5, 20))) + " ." for _ in range(count)]


def text(folder: Path, python: str) -> None:  # noqa: ARG001 - the form of all
    """Write a text for nanoGPT, minGPT and the word language model."""
    characters = "\n".join(["O God, O God!", *_sentences(3000, 0)])  # which minGPT continues
    (folder / "input.txt").write_text(characters)
    for split, count in (("train", 700), ("valid", 60), ("test", 60)):
        place = folder / "data" / "small" / f"{split}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(_sentences(count, 1)))
    prepared = folder / "data" / "shakespeare_char"
    if prepared.exists():
        letters = sorted(set(characters))
        numbers = {letter: index for index, letter in enumerate(letters)}
        coded = np.array([numbers[letter] for letter in characters], np.uint16)
        cut = int(0.9 * len(coded))
        coded[:cut].tofile(prepared / "train.bin")
        coded[cut:].tofile(prepared / "val.bin")
        about = {"vocab_size": len(letters), "stoi": numbers, "itos": dict(enumerate(letters))}
        (prepared / "meta.pkl").write_bytes(pickle.dumps(about))


def coded_text(folder: Path, python: str) -> None:  # noqa: ARG001 - the form of all
    """Write a text as llm.c reads it: a header of 256 integers, and numbers of tokens."""
    tokens = np.frombuffer("\n".join(_sentences(3000, 0)).encode(), np.uint8).astype(np.uint16)
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(tokens)
    (folder / "tokens.bin").write_bytes(header.tobytes() + tokens.tobytes())


def _picture(index: int, edge: int = 96) -> Image.Image:
    """Return a picture that is smooth, as photographs are."""
    coarse = np.random.default_rng(index).integers(0, 255, (8, 8, 3), np.uint8)
    return Image.fromarray(coarse).resize((edge, edge), Image.Resampling.BICUBIC)


def photos(folder: Path, python: str) -> None:  # noqa: ARG001 - the form of all
    """Write folders of pictures by class, as ImageNet's."""
    for split, count in (("train", 16), ("val", 2), ("validation", 2)):
        for label in range(CLASSES):
            place = folder / "data" / split / str(label)
            place.mkdir(parents=True)
            for index in range(count):
                _picture(index * CLASSES + label).save(place / f"{index}.jpg")


def digits(folder: Path, python: str) -> None:
    """Write MNIST's files, in the places where the examples of PyTorch and Lightning look for them."""
    chosen = np.random.default_rng(0)
    root = folder / "examples" / "Datasets" if (folder / "examples").exists() else folder.parent / "data"
    raw, complete = root / "MNIST" / "raw", root / "MNIST" / "complete"
    raw.mkdir(parents=True, exist_ok=True)
    complete.mkdir(exist_ok=True)
    for split, count in (("train", 60_000 if "examples" in str(root) else 3_000), ("t10k", 500)):
        images = chosen.integers(0, 255, (count, 28, 28), np.uint8)
        labels = chosen.integers(0, CLASSES, count, np.uint8)
        (raw / f"{split}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, *images.shape) + images.tobytes())
        (raw / f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())
    if "examples" in str(root):
        convert = (
            "import numpy, sys, torch, pathlib\n"
            "for split, name in (('train', 'training'), ('t10k', 'test')):\n"
            "    read = lambda what, skip: numpy.fromfile(f'{sys.argv[1]}/{split}-{what}-ubyte', numpy.uint8)[skip:]\n"
            "    x, y = read('images-idx3', 16).reshape(-1, 28, 28), read('labels-idx1', 8).astype(numpy.int64)\n"
            "    torch.save((torch.from_numpy(x), torch.from_numpy(y)), f'{sys.argv[2]}/{name}.pt')\n"
        )
        subprocess.run([python, "-c", convert, raw, complete], check=True)


def digits_above(folder: Path, python: str) -> None:
    """Write MNIST's files where the examples of Fabric look for them, beside the folder of the examples."""
    digits(folder / "examples", python)
    (folder / "data").rename(folder / "Datasets")


def graphs(folder: Path, python: str) -> None:  # noqa: ARG001 - the form of all
    """Write 188 rings of atoms as MUTAG's files."""
    raw = folder / "data" / "TU" / "MUTAG" / "raw"
    raw.mkdir(parents=True)
    rows: dict[str, list[str]] = {name: [] for name in ("A", "graph_indicator", "graph_labels", "node_labels")}
    chosen, first = np.random.default_rng(0), 1
    for graph in range(188):
        nodes = int(chosen.integers(10, 28))
        rows["graph_labels"].append(str(graph % 2))
        rows["graph_indicator"] += [str(graph + 1)] * nodes
        rows["node_labels"] += [str(each) for each in chosen.integers(0, 7, nodes)]
        ends = [(first + node, first + (node + 1) % nodes) for node in range(nodes)]
        rows["A"] += [f"{one}, {other}" for pair in ends for one, other in (pair, pair[::-1])]
        first += nodes
    for name, lines in rows.items():
        (raw / f"MUTAG_{name}.txt").write_text("\n".join(lines) + "\n")


def documents(folder: Path, python: str) -> None:
    """Write shards of texts and a tokenizer of bytes, as nanochat reads them."""
    make = (
        "import json, pathlib, pickle, sys, pyarrow, pyarrow.parquet, tiktoken, torch\n"
        "base = pathlib.Path('base')\n"
        "tokens, shards = base / 'tokenizer', base / 'base_data_climbmix'\n"
        "tokens.mkdir(parents=True), shards.mkdir()\n"
        "roles = [f'{who}_{end}' for who in ('user', 'assistant', 'python', 'output') for end in ('start', 'end')]\n"
        "special = {f'<|{name}|>': 256 + i for i, name in enumerate(['bos', *roles])}\n"
        "ranks = {bytes([i]): i for i in range(256)}\n"
        "coding = tiktoken.Encoding('b', pat_str='[a-z]+|[^a-z]', mergeable_ranks=ranks, special_tokens=special)\n"
        "(tokens / 'tokenizer.pkl').write_bytes(pickle.dumps(coding))\n"
        "torch.save(torch.tensor([1] * 256 + [0] * len(special), dtype=torch.int32), tokens / 'token_bytes.pt')\n"
        "texts = json.load(sys.stdin)\n"
        "for i in range(3):\n"
        "    table = pyarrow.table({'text': texts[1000 * i:1000 * i + 1000]})\n"
        "    pyarrow.parquet.write_table(table, shards / f'shard_{i:05d}.parquet', row_group_size=200)\n"
    )
    texts = json.dumps(_sentences(3000, 0))
    subprocess.run([python, "-c", make], check=True, cwd=folder, input=texts, text=True)


def labelled_boxes(folder: Path, python: str) -> None:  # noqa: ARG001 - the form of all
    """Write pictures with boxes as Ultralytics' data sets have them."""
    for split, count in (("train", 96), ("val", 16)):
        for kind in ("images", "labels"):
            (folder / "boxes" / kind / split).mkdir(parents=True)
        for index in range(count):
            _picture(index).save(folder / "boxes" / "images" / split / f"{index}.jpg")
            box = np.random.default_rng(index).uniform(0.3, 0.7, 4)
            line = f"{index % 2} " + " ".join(f"{value:.3f}" for value in box)
            (folder / "boxes" / "labels" / split / f"{index}.txt").write_text(line)
    names = "names: {0: one, 1: other}\n"
    (folder / "data.yaml").write_text(f"path: {folder / 'boxes'}\ntrain: images/train\nval: images/val\n{names}")


def small_text_model(folder: Path, python: str) -> None:
    """Write a Llama of two layers with a tokenizer of letters, and texts to tune it on."""
    make = (
        "import sys, torch\n"
        "from tokenizers import Tokenizer, models, pre_tokenizers\n"
        "from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast\n"
        "letters = ['<pad>', '<s>', '</s>', '<unk>', *' abcdefghijklmnopqrstuvwxyz.']\n"
        "inner = Tokenizer(models.WordLevel({l: i for i, l in enumerate(letters)}, unk_token='<unk>'))\n"
        "inner.pre_tokenizer = pre_tokenizers.Split('', 'isolated')\n"
        "named = dict(pad_token='<pad>', bos_token='<s>', eos_token='</s>', unk_token='<unk>')\n"
        "PreTrainedTokenizerFast(tokenizer_object=inner, **named).save_pretrained(sys.argv[1])\n"
        "torch.manual_seed(0)\n"
        "sizes = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)\n"
        "config = LlamaConfig(vocab_size=len(letters), pad_token_id=0, bos_token_id=1, eos_token_id=2, **sizes)\n"
        "LlamaForCausalLM(config).save_pretrained(sys.argv[1])\n"
    )
    subprocess.run([python, "-c", make, folder / "model"], check=True)
    texts = _sentences(400, 0)
    pairs = [{"prompt": a, "chosen": b, "rejected": c} for a, b, c in zip(texts, texts[1:], texts[2:], strict=False)]
    for name, rows in (("data", [{"text": sentence} for sentence in texts]), ("pairs", pairs)):
        (folder / name).mkdir()
        (folder / name / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))


def clip_shards(folder: Path, python: str) -> None:
    """Write shards of pictures with texts, and the settings of a small CLIP that open_clip finds by its name."""
    (folder / "shards").mkdir()
    for shard in range(4):
        with tarfile.open(folder / "shards" / f"{shard:02d}.tar", "w") as archive:
            for index, sentence in enumerate(_sentences(160, shard)):
                picture = io.BytesIO()
                _picture(index, 64).save(picture, "JPEG")
                for ending, data in (("jpg", picture.getvalue()), ("txt", sentence.encode())):
                    entry = tarfile.TarInfo(f"{shard}{index:05d}.{ending}")
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
    settings = (
        '{"embed_dim": 64, "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "patch_size": 16},'
        ' "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2}}'
    )
    find = "import open_clip, pathlib; print(pathlib.Path(open_clip.__file__).parent / 'model_configs')"
    found = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    (Path(found) / "small.json").write_text(settings)
