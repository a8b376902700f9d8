"""Training by libraries over torch: `python libraries.py KIND`, alone or by a launcher."""

import contextlib
import os
import sys

import planting
import torch
import torch.distributed as dist
from planting import BATCH, OUT, STEPS, Net, Samples, batches, endless, evaluate, finish, loss_of, pause, timed
from torch import nn
from torch.nn import functional


def zero(stage):
    """DeepSpeed's ZeRO with two micro-steps, evaluation and a checkpoint."""
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    os.environ.setdefault("LOCAL_RANK", str(planting.rank))
    deepspeed.init_distributed("gloo")
    settings = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    net = Net()
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=settings)
    evaluated = planting.evaluation_loader()
    for micro, batch in enumerate(endless(batches()), 1):
        loss = loss_of(engine, batch)
        engine.backward(loss)
        engine.step()
        if micro == STEPS:
            timed("evaluation", evaluate, engine, evaluated)
        if micro == STEPS + 8:
            timed("checkpoint", engine.save_checkpoint, str(OUT / "deepspeed"))
        if micro == 2 * STEPS:
            break
    finish(loss, net)


def zero1():
    zero(1)


def zero2():
    zero(2)


def zero3():
    zero(3)


def horovod():
    """Horovod's optimizer; its launcher sets the rank."""
    import horovod.torch as hvd
    import loops

    hvd.init()
    planting.rank, planting.world = hvd.rank(), hvd.size()
    net = Net(slow=hvd.rank() == 1)
    optimizer = hvd.DistributedOptimizer(loops.adam(net), named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), 0)
    finish(loops.train(net, optimizer, batches()), net)


def trainer():
    """The Trainer of transformers with two micro-steps."""
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x, labels=None):
            logits = self.net(x)
            return {"loss": functional.cross_entropy(logits, labels), "logits": logits}

    class Named(Samples):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return {"x": x, "labels": y}

    settings = TrainingArguments(
        str(OUT / "trainer"),
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        max_steps=STEPS,
        gradient_accumulation_steps=2,
        report_to=[],
        use_cpu=True,
        eval_strategy="steps",
        eval_steps=STEPS // 2,
        save_steps=STEPS * 2 // 3,
        logging_steps=5,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    model = Model()
    evaluated = Named(40 * planting.world, 0.07, "evaluation load")
    Trainer(model, settings, train_dataset=Named(), eval_dataset=evaluated).train()
    finish(None, model)


def accelerated():
    """Accelerate's loop with two micro-steps."""
    import loops
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = Net()
    net, optimizer, loader, evaluated = accelerator.prepare(
        net, loops.adam(net), batches(), batches(Samples(80, 0.02, "evaluation load"))
    )
    for micro, batch in enumerate(endless(loader), 1):
        with accelerator.accumulate(net):
            loss = loss_of(net, batch)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if micro == STEPS:
            timed("evaluation", evaluate, net, evaluated)
        if micro == 2 * STEPS:
            break
    timed("checkpoint", accelerator.save_state, str(OUT / "accelerate"))
    finish(loss, net)


def lightning(strategy="auto"):
    """Lightning's Trainer, with its own processes."""
    import lightning as pl
    from lightning_module import Module

    fit = pl.Trainer(
        accelerator="cpu",
        devices=1 if strategy == "auto" else 2,
        strategy=strategy,
        max_steps=STEPS,
        val_check_interval=STEPS // 2,
        check_val_every_n_epoch=None,
        limit_val_batches=10,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        logger=False,
        default_root_dir=str(OUT / "lightning"),
        enable_model_summary=False,
    )
    pl.seed_everything(0)
    fit.fit(Module(), batches(), planting.evaluation_loader())


def lightning_fork():
    lightning("ddp_fork")


def lightning_spawn():
    lightning("ddp_spawn")


def lightning_ddp():
    lightning("ddp")


def stateful():
    """Torchdata's StatefulDataLoader."""
    import loops
    from torchdata.stateful_dataloader import StatefulDataLoader

    loops.join()
    net = loops.parallel(Net())
    finish(loops.train(net, loops.adam(net), StatefulDataLoader(Samples(), batch_size=BATCH)), net)


def webdataset():
    """Samples in a tar file, read by WebDataset."""
    import io
    import tarfile

    import loops
    import webdataset as wds

    loops.join()
    path = OUT / f"samples-{planting.rank}.tar"
    with tarfile.open(path, "w") as archive:
        for index in range(400):
            for ending, value in (("pth", torch.randn(planting.WIDTH)), ("cls", index % 10)):
                data = io.BytesIO()
                torch.save(value, data) if ending == "pth" else data.write(str(value).encode())
                entry = tarfile.TarInfo(f"{index:06d}.{ending}")
                entry.size = data.tell()
                data.seek(0)
                archive.addfile(entry, data)

    def slow(sample):
        pause("load", planting.LOAD_S / BATCH)
        return sample

    samples = wds.WebDataset(str(path), shardshuffle=False, nodesplitter=lambda source: source)
    samples = samples.decode().map(slow).to_tuple("pth", "cls").batched(BATCH)
    net = loops.parallel(Net())
    finish(loops.train(net, loops.adam(net), wds.WebLoader(samples, batch_size=None, num_workers=0)), net)


def ultralytics():
    """Ultralytics' trainer, with its validations and checkpoints."""
    import made_up_data
    from ultralytics.models.yolo.detect import DetectionTrainer
    from ultralytics.nn.tasks import DetectionModel

    made_up_data.labelled_boxes(OUT, sys.executable)

    class Slow(DetectionModel):
        def forward(self, x, *arguments, **named):
            if self.training and isinstance(x, dict):  # of which its loss calls it again with the pictures
                pause("slow", planting.SLOW_S)
            return super().forward(x, *arguments, **named)

    class Trainer(DetectionTrainer):
        def get_model(self, cfg=None, weights=None, verbose=True):  # noqa: ARG002 - Ultralytics' form
            return self.set_model_names_for_load(Slow(cfg, nc=2, ch=3, verbose=False))

        def build_dataset(self, img_path, mode="train", batch=None):
            dataset = super().build_dataset(img_path, mode, batch)
            kind = type(dataset)

            def item(self, index):
                pause("pause", planting.LOAD_S / 12)
                return kind.__getitem__(self, index)

            if mode == "train":
                getter = {"__getitem__": lambda self, index: timed("load", item, self, index)}
                dataset.__class__ = type("SlowDataset", (kind,), getter)
            return dataset

        def validate(self):
            return timed("evaluation", super().validate)

        def save_model(self):
            return timed("checkpoint", super().save_model)

    settings = {
        "model": "yolo11n.yaml",
        "data": str(OUT / "data.yaml"),
        "epochs": 3,
        "imgsz": 64,
        "batch": 12,
        "nbs": 12,
    }
    settings |= {"device": "cpu", "workers": 0, "plots": False, "amp": False, "mosaic": 0.0, "warmup_epochs": 0}
    settings |= {"seed": 0, "deterministic": True, "optimizer": "SGD", "project": str(OUT), "verbose": False}
    trainer = Trainer(overrides=settings)
    trainer.train()
    finish(None, trainer.model)


def ray_train():
    """Two workers of Ray's TorchTrainer, on two raylets of this machine; they inherit the variables."""
    import ray
    from ray.cluster_utils import Cluster
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80_000_000})
    cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    ray.init(cluster.address)
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}, placement_strategy="STRICT_SPREAD")
    run = RunConfig(storage_path=str(OUT.absolute() / "ray"))
    TorchTrainer(ray_worker, torch_config=TorchConfig(backend="gloo"), scaling_config=scaling, run_config=run).fit()
    ray.shutdown()
    cluster.shutdown()


def ray_worker():
    import loops
    import planting
    import ray.train
    import ray.train.torch
    import torch

    torch.manual_seed(0)
    planting.rank, planting.world = ray.train.get_context().get_world_rank(), 2
    net = ray.train.torch.prepare_model(planting.Net(slow=planting.rank == 1))
    planting.finish(loops.train(net, loops.adam(net), planting.batches()), net)


def dali():
    """DALI's iterator over a slow source."""
    import loops
    import numpy as np
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    def source():
        while True:
            pause("load", planting.LOAD_S)
            yield np.ones((BATCH, planting.WIDTH), "float32"), np.zeros((BATCH, 1), "int64")

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None, exec_dynamic=False, prefetch_queue_depth=1)
    def pipeline():
        return tuple(fn.external_source(source(), num_outputs=2))

    net = Net()
    optimizer = loops.adam(net)
    loader = DALIGenericIterator([pipeline()], ["x", "y"])
    for step, batch in enumerate(loader):
        loss = loss_of(net, (batch[0]["x"], batch[0]["y"].squeeze(1)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == STEPS:
            break
    finish(loss, net)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    with contextlib.suppress(AssertionError, ValueError):
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
