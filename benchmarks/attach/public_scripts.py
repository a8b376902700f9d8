"""Public training scripts, run alone and attached: what attach says beside what each logs of itself.

::

    python benchmarks/attach/public_scripts.py CLONES --python PYTHON [--scripts NAME …] [--renew]

CLONES holds clones of the repositories of ``SCRIPTS``, each named as its repository; PYTHON has the packages that they
import (torch, torchvision, timm, lightning, ultralytics, open_clip_torch, webdataset, trl, peft). Ultralytics needs
torchvision's operators, which the build on PyPI lacks over a torch of processors. Data sets are made up. A script logs
the time of a step or none: then steps are timed by when its lines come. Of losses the printed text is compared.
`--renew` writes `public_scripts.csv`.
"""

import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "scripts"))
from made_up_data import clip_shards, coded_text, digits, labelled_boxes, photos, small_text_model, text

RESULT = Path(__file__).with_suffix(".csv")
WARM = 5
"""First logged steps that are left out, as attach leaves out the first ones."""


@dataclass(frozen=True)
class Script:
    """A public script: how it is started, and how to read what it logs."""

    name: str
    source: str
    """Repository and commit, or package and version."""
    words: str
    """Its command; ``{python}`` and ``{bin}`` are known."""
    losses: str
    """What of its output must not change."""
    samples: int
    """In a step of all ranks, or tokens."""
    step: str = ""
    """Finds the seconds of a step, or steps or samples a second; empty: of when lines with ``losses`` come."""
    per: float = 1.0
    """Seconds in what ``step`` finds; 0: steps in a second."""
    every: int = 1
    """Steps from line to line."""
    make: Callable[[Path, str], None] | None = None
    folder: str = "."
    files: str = ""
    """Of the repository; empty: Python's in ``folder`` and below."""
    unit: str = "samples"
    log: str = ""
    """A file with further losses."""
    change: str = "none"
    replaced: tuple[tuple[str, str], ...] = ()
    """Texts of its files, and what is put in their places."""


TORCHRUN = "{bin}/torchrun --standalone --nproc-per-node 2"
EXAMPLES = "pytorch/examples 77f55b9"
TRL = (
    "{{python}} -m trl.scripts.{} --model_name_or_path model --dataset_name {} --output_dir out --max_steps 40 "
    "--per_device_train_batch_size 4 --logging_steps 1 --learning_rate 1e-3 --report_to none --use_cpu true "
    "--save_strategy no --bf16 false --gradient_checkpointing false"
)
SCRIPTS = (
    Script(
        "nanoGPT train.py",
        "karpathy/nanoGPT 3adf61e1",
        "{python} train.py config/train_shakespeare_char.py --device=cpu --compile=False --dtype=float32 "
        "--eval_iters=2 --eval_interval=25 --log_interval=1 --block_size=64 --batch_size=8 --n_layer=4 --n_head=4 "
        "--n_embd=128 --max_iters=60 --dropout=0.0 --gradient_accumulation_steps=4",
        r"loss ([\d.]+)",
        4 * 8 * 64,
        r"time ([\d.]+)ms",
        1e-3,
        make=text,
        unit="tokens",
        files="*.py",
    ),
    Script(
        "minGPT chargpt.py",
        "karpathy/minGPT 37baab7",
        "{python} projects/chargpt/chargpt.py --model.model_type=gpt-nano --data.block_size=64 "
        "--trainer.max_iters=120 --trainer.batch_size=16 --trainer.num_workers=1",
        r"train loss ([\d.]+)",
        16,
        r"iter_dt ([\d.]+)ms",
        1e-3,
        make=text,
        files="*.py",
    ),
    Script(
        "llm.c train_gpt2.py",
        "karpathy/llm.c f1e2ace",
        "{python} train_gpt2.py --input_bin tokens.bin --input_val_bin tokens.bin --val_loss_every 10 "
        "--val_max_steps 2 --model d12 --batch_size 4 --sequence_length 64 --total_batch_size 512 --num_iterations 60 "
        "--device cpu --write_tensors 0 --overfit_single_batch 0",
        r"loss ([\d.]+)",
        512,
        r"\(([\d.]+) ms",
        1e-3,
        make=coded_text,
        unit="tokens",
        files="train_gpt2.py",
        change="a smaller d12; no tokenizer, whose table would be fetched",
        replaced=(
            ("n_layer=12, n_head=12, n_embd=768", "n_layer=4, n_head=4, n_embd=64"),
            ("import tiktoken", ""),
            ('enc = tiktoken.get_encoding("gpt2")', "enc = None"),
        ),
    ),
    Script(
        "makemore.py",
        "karpathy/makemore 988aa59",
        "{python} makemore.py -i names.txt -o out --max-steps 150 -n 1",
        r"loss ([\d.]+)",
        32,
        r"step time ([\d.]+)ms",
        1e-3,
        every=10,
        files="*",
    ),
    Script(
        "timm train.py, two ranks",
        "huggingface/pytorch-image-models aa4b5850",
        TORCHRUN + " train.py --data-dir data --model resnet18 --num-classes 10 --img-size 64 --batch-size 8 "
        "--epochs 4 --device cpu --no-prefetcher --workers 1 --lr 0.01 --log-interval 1",
        r"Loss: ([\d.]+) ",
        16,
        r"Time: ([\d.]+)s",
        make=photos,
        files="train.py",
        change="device_ids of DDP, which processors refuse",
        replaced=(("device_ids=[device]", "device_ids=None"),),
    ),
    Script(
        "imagenet main.py",
        EXAMPLES,
        "{python} main.py data -a resnet18 -b 4 -j 1 --epochs 1 -p 1 --seed 0 --no-accel",
        r"Loss (\S+) ",
        4,
        r"Time +([\d.]+) ",
        make=photos,
        folder="imagenet",
    ),
    Script(
        "word_language_model main.py",
        EXAMPLES,
        "{python} main.py --data data/small --model Transformer --epochs 1 --emsize 64 --nhid 64 --batch_size 8 "
        "--log-interval 20 --use-optimizer --lr 0.001",
        r"loss +([\d.]+)",
        8 * 35,
        r"ms/batch +([\d.]+)",
        1e-3,
        make=text,
        folder="word_language_model",
        unit="tokens",
    ),
    Script(
        "mnist main.py",
        EXAMPLES,
        "{python} -u main.py --epochs 1 --log-interval 1 --batch-size 32 --no-accel",
        r"Loss: ([\d.]+)",
        32,
        make=digits,
        folder="mnist",
    ),
    Script(
        "dcgan main.py",
        EXAMPLES,
        "{python} -u main.py --dataset fake --batchSize 16 --ngf 8 --ndf 8 --niter 1 --workers 1 --manualSeed 1",
        r"Loss_D: (\S+ Loss_G: \S+)",
        16,
        folder="dcgan",
    ),
    Script(
        "vae main.py",
        EXAMPLES,
        "{python} -u main.py --epochs 1 --log-interval 1 --batch-size 32 --no-accel",
        r"Loss: ([\d.]+)",
        32,
        make=digits,
        folder="vae",
        files="vae/*",
    ),
    Script(
        "Lightning autoencoder.py",
        "Lightning-AI/pytorch-lightning 7f0c3436cd",
        "{python} examples/pytorch/basics/autoencoder.py --trainer.max_steps=120 --trainer.accelerator=cpu "
        "--trainer.devices=1 --trainer.limit_val_batches=2 --trainer.limit_test_batches=2 "
        "--trainer.limit_predict_batches=2",
        r"test_loss_epoch\D+([\d.]+)|test_loss\D+([\d.]+)",
        32,
        r"Epoch 0.* ([\d.]+)it/s",
        0.0,
        make=digits,
        files="examples/pytorch/basics/*.py",
    ),
    Script(
        "Fabric train_fabric.py",
        "Lightning-AI/pytorch-lightning 7f0c3436cd",
        "{bin}/fabric run --accelerator cpu --devices 1 examples/fabric/image_classifier/train_fabric.py --epochs 1 "
        "--log-interval 5 --batch-size 32",
        r"Loss: ([\d.]+)",
        32,
        every=5,
        make=digits,
        files="examples/fabric/image_classifier/*.py",
    ),
    Script(
        "yolo detect train",
        "PyPI ultralytics 8.4.190",
        "{bin}/yolo detect train model=yolo11n.yaml data=data.yaml epochs=3 imgsz=64 batch=8 device=cpu workers=1 "
        "plots=False seed=0 deterministic=True amp=False",
        r"^\d+,[\d.e-]+,([^,]+,[^,]+,[^,]+)",
        8,
        r" ([\d.]+)it/s",
        0.0,
        make=labelled_boxes,
        log="runs/detect/train/results.csv",
    ),
    Script(
        "trl sft",
        "PyPI trl 1.16.0",
        TRL.format("sft", "data") + " --max_length 64",
        r"'loss': '?([\d.]+)",
        4,
        make=small_text_model,
    ),
    Script(
        "trl sft with LoRA",
        "PyPI trl 1.16.0 with peft 0.21.0",
        TRL.format("sft", "data") + " --max_length 64 --use_peft --lora_r 8",
        r"'loss': '?([\d.]+)",
        4,
        make=small_text_model,
    ),
    Script(
        "trl dpo",
        "PyPI trl 1.16.0",
        TRL.format("dpo", "pairs") + " --max_length 64",
        r"'loss': '?([\d.]+)",
        4,
        make=small_text_model,
    ),
    Script(
        "open_clip_train with WebDataset",
        "PyPI open_clip_torch 3.3.0",
        "{python} -m open_clip_train.main --model small --train-data shards/{{00..03}}.tar --train-num-samples 320 "
        "--dataset-type webdataset --batch-size 8 --workers 1 --epochs 1 --warmup 1 --device cpu --log-every-n-steps 1 "
        "--precision fp32 --seed 0",
        r"Contrastive_loss: (\S+)",
        8,
        r"Batch \(t\): ([\d.]+)",
        make=clip_shards,
        change="none; its shuffling draws a seed from the clock, so that no two runs are equal",
    ),
)


def lines_of(command: Sequence[str], folder: Path) -> list[tuple[float, str]]:
    """Run ``command``; return what it printed by line, with when each came; a progress bar's turns are lines."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder), "COLUMNS": "200"}
    environment |= {"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "PL_USE_MOCKED_MNIST": "1", "YOLO_OFFLINE": "true"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    found: list[tuple[float, str]] = []
    pending = b""
    while process.stdout is not None and (read := os.read(process.stdout.fileno(), 1 << 16)):
        *whole, pending = re.split(rb"[\r\n]", pending + read)
        found += [(time.monotonic(), line.decode(errors="replace")) for line in whole]
    if process.wait():
        sys.exit(f"{' '.join(command)} in {folder} ended with {process.returncode}:\n" + "\n".join(t for _, t in found))
    return found


def losses_of(script: Script, folder: Path, lines: Sequence[tuple[float, str]]) -> list[str]:
    """Return the printed losses."""
    texts = [line for _, line in lines]
    if script.log:
        texts = (folder / script.log).read_text().splitlines()
    return ["".join(map(str, found)) for line in texts for found in re.findall(script.losses, line)]


def own_steps(script: Script, lines: Sequence[tuple[float, str]]) -> list[float]:
    """Return the seconds of steps that the script logs, or between its lines; none where it logs neither."""
    if not script.every:
        return []
    if script.step:
        found = [float(number) for _, line in lines for number in re.findall(script.step, line)]
        seconds = [number * script.per if script.per else 1.0 / number for number in found if number > 0.0]
        return seconds[-1:] if not script.per else seconds[min(WARM, len(seconds) // 4) :]
    moments = [at for at, line in lines if re.search(script.losses, line)]
    return [(later - former) / script.every for former, later in pairwise(moments)][WARM:]


def checked_out(script: Script, clones: Path, folder: Path, python: str) -> Path:
    """Put the script's files and data into ``folder``; return where it starts."""
    repository, _, commit = script.source.partition(" ")
    if repository != "PyPI":
        git = ["git", "-C", str(clones / repository.rpartition("/")[2])]
        listed = subprocess.run(
            [*git, "ls-tree", "-r", "--name-only", commit], capture_output=True, text=True, check=True
        )
        for name in listed.stdout.splitlines():
            if fnmatch(name, script.files or f"{script.folder}/*.py"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shown = subprocess.run([*git, "show", f"{commit}:{name}"], capture_output=True, check=True)
                code = shown.stdout
                for words, others in script.replaced:
                    code = code.replace(words.encode(), others.encode())
                (folder / name).write_bytes(code)
    place = folder / script.folder
    if script.make is not None:
        script.make(place, python)
    return place


def compared(script: Script, clones: Path, python: str) -> dict[str, Any]:
    """Run a script alone and attached; return the row of the table."""
    words = script.words.format(python=python, bin=Path(python).parent).split()
    with tempfile.TemporaryDirectory() as name:
        folders = []
        for part in ("alone", "attached"):
            (Path(name) / part).mkdir()
            folders.append(checked_out(script, clones, Path(name) / part, python))
        alone = lines_of(words, folders[0])
        results = Path(name) / "results"
        steptime = [sys.executable, "-m", "steptime"]
        lines = lines_of([*steptime, "attach", "--flops", "-o", str(results), "--", *words], folders[1])
        losses = [losses_of(script, *each) for each in zip(folders, (alone, lines), strict=True)]
        said = subprocess.run([*steptime, "report", results, "--json"], capture_output=True, text=True, check=True)
        if keep := os.environ.get("KEEP"):
            (Path(keep) / f"{script.name.replace(' ', '-')}.log").write_text("\n".join(line for _, line in lines))
            (Path(keep) / f"{script.name.replace(' ', '-')}.json").write_text(said.stdout)
    found = json.loads(said.stdout)["attached"]
    own = own_steps(script, lines)
    equal = sum(one == other for one, other in zip(*losses, strict=False))
    spread, rate = found["spread"], found["throughput"][script.unit]["per_s"] if found["throughput"] else None
    return {
        "script": script.name,
        "source": script.source,
        "ranks": found["world"],
        "steps": found["steps"],
        "own_step_ms": number(1e3 * statistics.median(own)) if own else "not logged",
        "attach_step_ms": number(1e3 * spread["median_s"]) if spread else "",
        "unit": script.unit,
        "own_per_s": number(script.samples / statistics.mean(own)) if own else "not logged",
        "attach_per_s": interval(rate) if rate else "",
        "not_known": (found["throughput"] or {}).get(script.unit, {}).get("reason") or "",
        "losses_equal": f"{equal} of {max(map(len, losses))}",
        "findings": "; ".join(finding["sentence"] for finding in found["findings"]),
        "load": f"{os.getloadavg()[0]:.1f}",
        "change": script.change,
    }


def number(value: float) -> str:
    """Return a number of three digits."""
    return f"{value:.3g}" if value < 1000.0 else f"{value:.0f}"


def interval(rate: dict[str, float | None]) -> str:
    """Return a rate with its interval."""
    if rate["value"] is None:
        return "not known"
    bounds = [rate["low"], rate["high"]]
    return number(rate["value"]) + (f" ({number(bounds[0])} to {number(bounds[1])})" if None not in bounds else "")


def main() -> None:
    """Run the scripts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--scripts", nargs="+", choices=[script.name for script in SCRIPTS])
    parser.add_argument("--renew", action="store_true")
    options = parser.parse_args()
    kept = list(csv.DictReader(RESULT.read_text().splitlines())) if RESULT.exists() else []
    rows = {row["script"]: row for row in kept}
    for script in SCRIPTS:
        if options.scripts and script.name not in options.scripts:
            continue
        rows[script.name] = row = compared(script, options.clones.absolute(), options.python)
        print(json.dumps(row, indent=1), flush=True)
        if options.renew:
            ordered = [rows[each.name] for each in SCRIPTS if each.name in rows]
            with RESULT.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                writer.writeheader()
                writer.writerows(ordered)


if __name__ == "__main__":
    main()
