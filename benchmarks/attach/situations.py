"""Thirty situations of problem reports, each planted, and whether what steptime says of it is right.

``situations.py OUT.csv TORCH``: TORCH is an interpreter with PyTorch, which trains ``scripts/situations.py``; the rest
needs steptime alone. A row has the report, what was planted, the sentence that answers it, and the verdict: ``right``
where the sentence has all that was planted, ``short`` where it is true and lacks the cause, ``wrong`` else.
"""

import csv
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SCRIPTS = Path(__file__).with_name("scripts") / "situations.py"
RANKS = "# nThread 1 nGpus 1\n# Using devices\n" + "".join(
    f"#  Rank {rank} Group 0 Pid {rank + 7} on n{rank} device 0 [0x07] A100\n" for rank in range(2)
)
ROWS = (
    "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    "#  (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)\n"
)
BASE = """
workloads: mlp
frameworks: reference
workers: [1, 2]
launches: {min: 1, max: 1}
seconds_per_launch: 0.3s
"""
HALVES = {
    power: f"{20 + (1 << power) / 1e4:.1f} " + 2 * f"{(1 << power) / (20e3 + (1 << power) / 10):.2f} "
    for power in (20, 22)
}
"""Time, algbw and busbw of a size, by its power of 2."""


class Situation(NamedTuple):
    """What somebody had: where it was reported, what is planted, what an answer must have, and lacks if it is short."""

    report: str
    planted: str
    answer: str
    files: dict[str, str]
    words: list[str]
    short: str = ""


def _script(name: str, ranks: int, *words: str) -> Situation:
    report, planted, answer, *short = words
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if ranks > 1 else []
    command = ["attach", "-o", "r", "--", "TORCH", *launcher, str(SCRIPTS), name]
    return Situation(report, planted, answer, {}, command, *short)


def _curve(text: str, report: str, planted: str, answer: str, short: str = "") -> Situation:
    return Situation(
        report, planted, answer, {"c.csv": text}, ["predict", "--curve", "c.csv", "--workers", "16"], short
    )


def _study(text: str, report: str, planted: str, answer: str, short: str = "") -> Situation:
    text = f"workloads: lenet5\nframeworks: reference\n{text}\n" if "workloads" not in text else text
    return Situation(report, planted, answer, {"s.yaml": text}, ["run", "s.yaml", "--dry-run"], short)


def _folder(files: list[str], report: str, planted: str, answer: str, short: str = "") -> Situation:
    study = "workloads: {name: lenet5, dataset: ./d, image: 28}\nframeworks: reference\n"
    return Situation(
        report, planted, answer, {"s.yaml": study, **dict.fromkeys(files, "x")}, ["run", "s.yaml", "--dry-run"], short
    )


GH = "github.com/"
SITUATIONS = [
    _script("accumulation_around_ddp", 2, GH + "pytorch/pytorch/issues/14462",
            "three of four passes by model.module", r"4\s+micro-steps each(?!.*separate models)"),
    _script("accumulation_with_each_exchange", 2, GH + "pytorch/pytorch/issues/43201",
            "an exchange in each of four micro-steps", r"no_sync\(\) in all but the last"),
    _script("no_sampler", 2, GH + "SalesforceAIResearch/DiffusionDPO/issues/15",
            "no sampler divides the data", r"Both ranks train on the same batches.*DistributedSampler"),
    _script("evaluation_on_rank_0", 2, GH + "rwth-i6/returnn/issues/1621",
            "rank 0 evaluates, 0.2 s each ten steps", r"rank 0 evaluates 3 times while the others wait"),
    _script("checkpoint_on_rank_0", 2, GH + "instructlab/training/pull/566",
            "rank 0 saves, 0.2 s each ten steps", r"steps [\d.]+ (s|ms) longer|others' evaluation or checkpoint"),
    _script("barriers_in_each_step", 2, GH + "dylanyunlon/Neuron_SP/issues/73",
            "rank 1 late by 20 ms at a barrier", r"wait (1[89]|2\d)[\d.]* ms .*for rank 1; it spends"),
    _script("a_slow_rank", 2, GH + "The-AI-Summer/pytorch-ddp/issues/1",
            "rank 1's forward 20 ms longer", r"for rank 1; its forward takes (1[89]|2[0-2])[\d.]* ms"),
    _script("workers_of_each_epoch", 1, GH + "open-mmlab/mmpretrain/issues/196",
            "loader processes anew in each epoch", r"in which an epoch begins"),
    _script("compiled_for_each_length", 1, GH + "pytorch/pytorch/issues/188150",
            "seven lengths of batches, compiled for each", r"compiled again 6 times.*size mismatch"),
    _script("pictures_logged_now_and_then", 1, "common with trackers",
            "0.2 s in each tenth step", r"one in 10,"),
    _script("garbage_in_each_step", 1, GH + "pytorch/pytorch/issues/105841, likewise",
            "gc.collect() in each step", r"Python's garbage collection takes"),
    _script("average_of_weights_by_copies", 1, "common with averages of weights",
            "18 ms of copies behind each update", r"passes between update and input\s+\(situations.py:\d+\s+update\)"),
    _script("a_new_optimizer_in_each_step", 1, "common among beginners",
            "an optimizer made anew in each step", r"new optimizer", r"forward .* update .*"),
    _script("words_made_tokens_in_collate", 1, GH + "NVlabs/Deep_Object_Pose/issues/88, likewise",
            "15 ms of collate in each request", r"waits 1[5-9][\d.]* ms.*for its input"),
    _curve('workers,throughput_samples_per_s,batch_per_worker\n1,"1,200",32\n2,"2,310",32\n', "spreadsheets",
           "thousands with commas", r"write 1200 if the comma separates thousands"),
    _curve("GPUs,ms/iter\n1,120\n2,131\n4,140\n", "notes of a newcomer", "other names of columns", r"rename 'gpus' to"),
    _curve("workers,it/s\n1,8.1\n2,7.6\n4,7.1\n", "progress bars", "steps a second", r"write 'it/s' as step_time_s"),
    _curve("workers,throughput_samples_per_s,batch_per_worker\n1,300,32\n2,290,32\n4,281,32\n8,270,32\n",
           "tables of samples/s a device", "a worker's throughput for that of all", r"that of one worker, multiply"),
    _curve("workers,speedup\n1,1.0\n2,1.9\n4,3.6\n", "papers", "speed-ups without a time",
           r"times the step of one", r"lacks the columns"),
    _curve("workers,step_time_s\n1,0.12\n2,0.13\n2,0.19\n4,0.14\n", "two runs of one count",
           "a count measured twice, 1.46 times apart", r"2 workers were measured 2 times, 1.46 times apart"),
    _study("workers: 2\nlauncher: ssh\nhosts: [n1, n1]", "machine files with a line a slot", "one host twice",
           r"'n1' is listed 2 times.*workers_per_host: 2"),
    _study("gradient_accumulation_steps: 4\nmax_steps: 9", "keys of a trainer", "two keys of another tool",
           r"did you mean 'accumulation'.*did you mean 'steps'"),
    _study("optimizer: {lr: 0.1, wd: 0.01}", "keys of a script", "short names", r"'learning_rate'.*'weight_decay'"),
    _study("workers: 2\nstrategies: [zero-2, tensor_parallel]", "DeepSpeed's words",
           "a spelling, and what is not there", r"did you mean 'zero2'.*all strategies are data-parallel"),
    _study("precision: [amp, fp8]", "precisions of others", "mixed precision by its old name", r"did you mean 'fp16'"),
    _study("workloads: lenet5\nframeworks: {pytorch: {strategies: fsdp}}", "nested settings", "a mapping of frameworks",
           r"is a mapping and not text.*write pytorch\s+alone"),
    _study("budget: 10 minutes", "other tools", "a unit in whole words", r"write 10m"),
    _study("workers: 2\nlauncher: emulated\ncluster: {hosts: 2, bandwidth: 10 GbE}", "data sheets",
           "a rate in their words", r"write 10Gbit/s"),
    Situation(GH + "NVIDIA/nccl-tests/issues/118", "nccl-tests of before 2.13: errors of 5e-07", r"profile: ",
              {"n.txt": RANKS + ROWS.replace("root ", "").replace("#wrong", "error")
               + "".join(
                         f" {1 << power} {1 << power - 2} float sum {half} 5e-07 {half} 5e-07\n"
                         for power, half in HALVES.items())},
              ["fit", "BASE", "-o", "p.json", "--nccl-tests", "n.txt"]),
    Situation(GH + "NVIDIA/nccl-tests/issues/167", "wrong results in the table", r"wrong values",
              {"n.txt": RANKS + ROWS + " 1048576 262144 float sum -1 100.1 10 10 7 100.0 10 10 7\n"
               "# Out of bounds values : 2 FAILED\n"},
              ["fit", "BASE", "-o", "p.json", "--nccl-tests", "n.txt"]),
    Situation(GH + "NVIDIA/nccl-tests/issues/107", "two processes without MPI", r"MPI=1",
              {"n.txt": RANKS.replace("Rank 1", "Rank 0").replace("on n1", "on n0")
               + ROWS + " 1310720000 327680000 float sum -1 3000.1 436 0 0 2999.0 437 0 0\n"},
              ["fit", "BASE", "-o", "p.json", "--nccl-tests", "n.txt"]),
    _folder(["d/train2017/0.jpg", "d/annotations/instances_train2017.json"], "COCO", "boxes and no classes",
            r"of boxes in pictures"),
    _folder(["d/train/0.jpg", "d/labels.csv"], "Kaggle", "labels in a table", r"labels in labels.csv are not read"),
    _folder(["d/train-00000-of-00001.parquet"], "Hugging Face", "a data set as Parquet", r"no images, but 1 parquet"),
]  # fmt: skip


def answers(torch: str) -> Iterator[dict[str, str]]:
    """Yield the row of each situation."""
    with tempfile.TemporaryDirectory() as made:
        base = Path(made)
        (base / "base.yaml").write_text(BASE)
        steptime(base, ["run", "base.yaml", "-o", "base"])
        for number, each in enumerate(SITUATIONS):
            folder = base / str(number)
            for name, text in each.files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
            folder.mkdir(exist_ok=True)
            known = {"TORCH": torch, "BASE": str(base / "base")}
            text = steptime(folder, [known.get(word, word) for word in each.words])
            if each.words[0] == "attach":
                text += steptime(folder, ["advise", "r"]) + steptime(folder, ["report", "--all", "r"])
            yield {
                "report": each.report,
                "planted": each.planted,
                **judged(each, " ".join(text.replace(f"{folder}/", "").split())),
            }


def steptime(folder: Path, words: list[str]) -> str:
    """Return what a command of steptime prints."""
    variables = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "steptime", *words], cwd=folder, env=variables,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    return done.stdout + done.stderr


def judged(situation: Situation, text: str) -> dict[str, str]:
    """Return the sentence that answers, and the verdict."""
    for verdict, wanted in (("right", situation.answer), ("short", situation.short)):
        if wanted and (found := re.search(wanted, text)):
            around = text[max(0, found.start() - 60) : found.end() + 60]
            return {"says": around if len(around) < 400 else around[:400], "verdict": verdict}
    return {"says": text[:300], "verdict": "wrong"}


def main() -> None:
    """Write the table."""
    with Path(sys.argv[1]).open("w", newline="") as file:
        table = csv.DictWriter(file, ["report", "planted", "says", "verdict"])
        table.writeheader()
        for row in answers(sys.argv[2]):
            table.writerow(row)
            file.flush()
            print(row["verdict"], row["planted"])


if __name__ == "__main__":
    main()
