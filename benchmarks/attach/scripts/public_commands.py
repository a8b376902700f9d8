"""Public training scripts: how each is started on made-up data, and how to read what it logs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from made_up_data import (
    clip_shards,
    coded_text,
    digits,
    digits_above,
    documents,
    graphs,
    labelled_boxes,
    photos,
    small_text_model,
    text,
)


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
        make=digits_above,
        files="examples/fabric/image_classifier/*.py",
    ),
    Script(
        "Fabric kfold_cv",
        "Lightning-AI/pytorch-lightning 7f0c3436cd",
        "{bin}/fabric run --accelerator cpu --devices 1 examples/fabric/kfold_cv/train_fabric.py --epochs 1 --folds 3 "
        "--log-interval 5 --batch-size 64",
        r"Loss: ([\d.]+)",
        64,
        every=5,
        make=digits_above,
        files="examples/fabric/kfold_cv/*.py",
    ),
    Script(
        "nanochat base_train",
        "karpathy/nanochat 92d63d4",
        "env NANOCHAT_BASE_DIR=base TORCHDYNAMO_DISABLE=1 {python} -m scripts.base_train --depth=2 --aspect-ratio=32 "
        "--head-dim=32 --max-seq-len=64 --window-pattern=L --device-type=cpu --device-batch-size=4 "
        "--total-batch-size=1024 --num-iterations=60 --eval-every=20 --eval-tokens=1024 --core-metric-every=-1 "
        "--sample-every=-1",
        r"loss: ([\d.]+)",
        1024,
        r"dt: ([\d.]+)ms",
        1e-3,
        make=documents,
        files="*.py",
        unit="tokens",
        change="none; without torch.compile",
    ),
    Script(
        "dlrm_s_pytorch.py",
        "facebookresearch/dlrm 090956e",
        "{python} dlrm_s_pytorch.py --arch-sparse-feature-size=16 --arch-embedding-size=1000-1000-1000-1000 "
        "--arch-mlp-bot=13-128-16 --arch-mlp-top=64-64-1 --data-generation=random --mini-batch-size=128 "
        "--num-batches=120 --print-freq=1 --print-time --num-indices-per-lookup=4 --test-freq=40",
        r"loss ([\d.]+)",
        128,
        r" ([\d.]+) ms/it",
        1e-3,
        files="*",
        change="none; its time of a step is without the wait for input",
    ),
    Script(
        "torch_geometric mutag_gin.py",
        "pyg-team/pytorch_geometric 5c6461b23",
        "{python} -u examples/mutag_gin.py --batch_size 16 --epochs 8",
        r"Loss: ([\d.]+)",
        16,
        every=0,
        make=graphs,
        files="examples/mutag_gin.py",
        change="none; it seeds nothing, so that no two runs are equal",
    ),
    Script(
        "yolo detect train",
        "PyPI ultralytics 8.4.190",
        "{bin}/yolo detect train model=yolo11n.yaml data=data.yaml epochs=3 imgsz=64 batch=8 device=cpu workers=1 "
        "plots=False seed=0 deterministic=True amp=False conf=0.99 nbs=8",
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
