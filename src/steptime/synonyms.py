"""What people of the field call a choice otherwise: looked up before spelling, which leads ``gpu`` to ``cpu``.

A word names the choices that it may mean; of those the ones that can be chosen at that place are offered. A word that
means none of them there gets a sentence, or no hint: it is spelled as it was meant.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path, PurePath

_CHOICES: Mapping[str, str] = {
    # frameworks
    "pytorch": "torch lightning pytorchlightning transformers huggingface hf accelerate timm fairseq",
    "tensorflow": "tf tf2 keras tensorflow2",
    "tensorflow1": "tf1 tfv1",
    "paddle": "paddlepaddle pdpd fleet",
    "chainer": "chainermn",
    "jax": "flax optax haiku xla",
    "caffe": "caffe2 caffempi",
    "mxnet": "gluon mx apachemxnet",
    "cntk": "cognitivetoolkit",
    "deepspeed": "ds zero zerooptimizer",
    "reference": "numpy dummyframework",
    "horovod_pytorch horovod_tensorflow horovod_mxnet allreduce": "horovod hvd hovorod horovodrun",
    # strategies
    "allreduce": "ddp dp dataparallel distributeddataparallel distributed ring ringallreduce hierarchicalallreduce "
    "nccl mirrored mirroredstrategy multiworkermirrored multiworkermirroredstrategy pmap psum bsp ssgd syncsgd "
    "bucketed dataparallelism kvstoredistdevice",
    "fsdp": "fsdp1 fsdp2 fullyshard fullysharded fullyshardeddataparallel sharded shardeddataparallel",
    "zero1 zero2 zero3": "zero zeroredundancy zerooptimizer deepspeed zerostage",
    "zero1": "zero1optimizer zeroredundancyoptimizer zerostage1 stage1 optimizerstatesharding",
    "zero2": "zerostage2 stage2",
    "zero3": "zerostage3 stage3 zeroinfinity",
    "ps_sync ps_async": "ps parameterserver parameterservers parameterserverstrategy kvstore distkvstore",
    "ps_sync": "syncps parameterserversync distsync",
    "ps_async": "async asgd downpour hogwild asyncsgd asyncps parameterserverasync distasync asynchronous",
    "single": "none local singlegpu onegpu sequential serial baseline nodistributed",
    "onebit": "1bit 1bitadam 1bitsgd onebitadam signsgd",
    "block_momentum": "bmuf blockmomentumsgd",
    # devices and precisions
    "cuda": "gpu gpus nvidia cuda0 gpu0 a100 h100 v100",
    "cpu": "host processor",
    "fp32": "float32 float single fullprecision 32 full",
    "fp16": "float16 half amp mixed mixedprecision mixedfp16 16mixed 16 o1 o2 fp16mixed",
    "bf16": "bfloat16 bf16mixed brainfloat mixedbf16 mixedbfloat16",
    "tf32": "tensorfloat32 tensorfloat",
    # loaders
    "native": "dataloader torchdataloader tfdata disk real imagefolder folder",
    "synthetic": "fake dummy random none fakedata syntheticdata benchmark",
    "webdataset": "wds tar tarshards shards",
    "tfrecord": "tfrecords tfrec",
    "recordio": "rec mxrec imagerecorditer",
    "dali": "nvidiadali",
    # launchers and ways to exchange messages
    "mpi": "mpirun mpiexec openmpi mpich intelmpi orterun",
    "slurm": "srun sbatch salloc",
    "local": "torchrun localhost torchelastic horovodrun fork spawn multiprocessing",
    "ssh": "pdsh parallelssh",
    "ray": "raytrain anyscale kuberay",
    "emulated": "emulation netem mininet namespaces",
    # keys of a study
    "workloads": "model models network net arch architecture workload task modelname benchmark",
    "frameworks": "framework backend backends library",
    "strategies": "strategy distributed distributedstrategy parallelism distributionstrategy distributedbackend",
    "loaders": "loader dataloader dataloaders inputpipeline",
    "workers": "numgpus ngpus gpus ngpu gpucount worldsize nproc np numprocs numprocesses nprocs processes ranks "
    "nranks numranks ntasks replicas numdevices devices workercount",
    "workers_per_host": "nprocpernode procpernode gpuspernode taskspernode ntaskspernode slots ppn localsize "
    "workerspernode",
    "hosts": "hostfile nodes nnodes numnodes nodelist machines nummachines hostlist numhosts machinefile",
    "batch_per_worker": "batchsize bs batch perdevicetrainbatchsize perdevicebatchsize batchpergpu batchperdevice "
    "localbatchsize minibatch minibatchsize microbatchsize trainmicrobatchsizepergpu batchsizepergpu samplespergpu "
    "imgspergpu batchperreplica",
    "global_batch": "globalbatchsize totalbatchsize effectivebatchsize trainbatchsize totaltrainbatchsize",
    "accumulation": "gradientaccumulationsteps gradaccum accum accumsteps accumiter gradacc gradientaccumulation "
    "accumulategradbatches accumulationsteps updatefreq",
    "precision": "dtype fp16 bf16 amp mixedprecision half precisions autocast floattype",
    "device": "gpu cuda accelerator usegpu usecuda nogpu usecpu",
    "steps": "iterations iters maxsteps numsteps niters numiters numbatches maxiters",
    "launches": "repeats runs trials repetitions repeat replicates numruns",
    "budget": "timeout maxtime duration walltime timebudget",
    "time_limit": "timeout timelimitperrun",
    "seed": "randomseed seeds manualseed",
    "optimizer": "optim optimiser optimizers solver opt",
    "threads_per_worker": "numthreads threads ompnumthreads intraopthreads intraop nthreads",
    "cores_per_worker": "cpuspertask cpus cores corespertask",
    "servers": "ps numps numservers parameterservers parameterserver nservers",
    "launcher": "launch runner startmethod mpi",
    "environment_variables": "env envvars environmentvariables environ envs",
    "learning_rate": "lr rate baselr initiallr",
    "weight_decay": "wd l2 decay weightdecayrate",
    "clip_norm": "maxgradnorm gradclip gradientclipval clipgradnorm gradientclipping clip",
    "epochs": "numepochs numtrainepochs maxepochs nepochs epoch",
    "target_accuracy": "targetacc accuracy stopaccuracy",
    "dataset": "datadir datapath traindir datasetname root dataroot",
    "image": "imagesize imgsize resolution inputsize imgsz size cropsize",
    "sequence": "seqlen sequencelength maxlength blocksize contextlength maxseqlength seqlength nctx",
    "classes": "numclasses nclasses numlabels",
    "vocabulary": "vocabsize nvocab",
    "processes": "numworkers loaderworkers workers nworkers dataloaderworkers dataloadernumworkers",
    "container": "docker image apptainer singularity podman",
    "python": "interpreter pythonpath executable",
    "names": "hostnames nodenames hostlist nodelist",
    "nodes": "nnodes numnodes hosts",
    "time": "walltime timelimit",
    "partition": "queue",
    "bandwidth interconnect.bandwidth": "bandwidth bw rate linkspeed linkrate networkbandwidth speed",
    "delay interconnect.delay": "delay latency rtt ping",
    "breakdown": "profile phases profiler",
}
"""Words without capitals and separators, by the choices that they may mean."""

_INSTEAD: Sequence[tuple[str, str, str]] = (
    # word, a choice of the places where the sentence is right, the sentence
    ("lr learningrate baselr initiallr", "optimizer", "write optimizer: {learning_rate: 0.1}"),
    ("momentum nesterov", "optimizer", "write optimizer: {name: sgd, momentum: 0.9}"),
    ("weightdecay wd", "optimizer", "write optimizer: {weight_decay: 1.0e-4}"),
    ("maxgradnorm gradclip clipgradnorm gradientclipping", "optimizer", "write optimizer: {clip_norm: 1.0}"),
    ("epochs numepochs numtrainepochs maxepochs nepochs epoch", "train", "write train: {epochs: 3}"),
    ("lrscheduler scheduler lrschedule schedule schedules", "train", "write train: {epochs: 3, schedules: cosine}"),
    ("warmup warmupsteps warmupepochs", "train", "write train: {epochs: 3, warmup_epochs: 1}; timed runs find theirs"),
    ("labelsmoothing", "train", "write train: {epochs: 3, label_smoothing: 0.1}"),
    ("dataset data datadir datapath traindir", "loaders", "write workloads: {name: resnet50, dataset: ./photos}"),
    ("image imagesize imgsize resolution inputsize imgsz", "loaders", "write workloads: {name: resnet50, image: 64}"),
    ("seqlen sequence sequencelength maxlength blocksize", "loaders", "write workloads: {name: gpt2, sequence: 256}"),
    ("classes numclasses", "loaders", "write workloads: {name: resnet50, classes: 10}"),
    (
        "numworkers dataloaderworkers dataloadernumworkers loaderworkers",
        "loaders",
        "training processes are workers; helper processes of a loader are loaders: {name: native, processes: 4}",
    ),
    (
        "nprocpernode procpernode gpuspernode taskspernode ntaskspernode slots ppn localsize workersperhost",
        "hosts",
        "on one machine write workers: 4; on several hosts: {names: [n1, n2], workers_per_host: 4}",
    ),
    ("nnodes numnodes nodes machines nummachines numhosts", "hosts", "write hosts: [n1, n2], or slurm: {nodes: 2}"),
    ("hostfile machinefile", "hosts", "write its path, as hosts: ./hostfile"),
    ("masteraddr masterport rdzvendpoint rdzvbackend noderank localrank", "hosts", "leave it out, steptime chooses it"),
    ("fp16", "precision", "write precision: fp16"),
    ("bf16", "precision", "write precision: bf16"),
    ("amp half mixedprecision autocast", "precision", "write precision: fp16 or precision: bf16"),
    ("pp tp pipeline pipelineparallel tensorparallel modelparallel megatron gpipe 3d pipelining", "allreduce",
     "all strategies are data-parallel"),
    ("mnist fashionmnist emnist", "digits", "digits is built in and small; files of yours are a folder"),
    ("cifar10 cifar100 imagenet imagenet1k tinyimagenet coco imagenette places365 svhn stl10 flowers102", "photos",
     "photos is built in and made, not downloaded"),
    ("wikitext wikitext2 wikitext103 openwebtext c4 ptb shakespeare tinyshakespeare bookcorpus enwik8 pile", "text",
     "text is built in; files of yours are a folder of .txt or .jsonl"),
    ("mps metal rocm hip amd tpu xpu npu ipu", "cuda", "steptime measures processors and NVIDIA GPUs"),
    ("conda mamba virtualenv pip poetry", "existing", "write kind: existing and python: /path/to/bin/python"),
)  # fmt: skip
_FAMILIES: Mapping[str, str] = {
    "resnet": r"(wide|pre)?res(net|next)(9|18|20|26|32|34|44|56|110|200|\d+32x\d+d|50v2|101v2|152v2|50d)?",
    "vgg": r"vgg(11|13|19)?(bn)?|vgg",
    "vit": r"vit|(vit|deit)(small|base|large|huge|s16|l16|l32|b32|h14|s|b|l)?(patch\d+)?(224|384)?",
    "gpt2": r"(nano)?gpt[23]?(medium|large|xl|m|l)?",
    "bert": r"bert(large|small|medium|mini)?(uncased|cased)?|roberta(base|large)?|distilbert",
    "llama": r"llama([23]|31|32)?(\d+b)?",
    "inception": r"inception(v[24])?|inceptionresnetv2",
    "lenet": r"lenet|lenet300100",
    "cifar": r"simplecnn|cnn|smallcnn",
    "a100": r"a100((sxm4?|pcie)?\d*(gb)?)?",
    "h100": r"h100((sxm5?|pcie|nvl)?\d*(gb)?)?",
}
"""By the beginning of names of workloads and devices, words for others of their family."""


def _unspelled(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def hint(value: str, choices: Iterable[str]) -> str:
    """Return what a word that is not one of ``choices`` may mean there: a question or a sentence, or nothing.

    >>> hint("gpu", ["auto", "cpu", "cuda"])
    "did you mean 'cuda'?"
    >>> hint("ring", ["allreduce", "single"])
    "did you mean 'allreduce'?"
    """
    names, word = sorted(choices), _unspelled(value)
    if same := [name for name in names if _unspelled(name) == word]:
        return question(same)
    if sentence := _sentence(word, names) or _family(word, names):
        return sentence
    meant = [name for meant, words in _CHOICES.items() if word in words.split() for name in meant.split()]
    if meant:
        return question([name for name in meant if name in names])
    return question(get_close_matches(value, names, n=1))


_ALIKE = 0.65
"""Of the letters of two names of files, without their endings, from which on one may be a slip of the other."""


def path_hint(path: Path, is_meant: Callable[[Path], bool] = Path.exists) -> str:
    """Return which file or folder a path that leads nowhere may mean: ``did you mean 'mine.yaml'?``, or nothing.

    Each part of the path that is not there may be spelled wrong, or have another ending; ``is_meant`` is whether the
    whole path can be what is looked for.
    """
    reached = Path()
    try:
        for index, part in enumerate(path.parts, 1):
            can_be = is_meant if index == len(path.parts) else Path.is_dir
            near = reached / part if (reached / part).exists() else _nearest_below(reached, part, can_be)
            if near is None:
                return ""
            reached = near
    except (OSError, ValueError):  # a folder that is closed, a NUL in the name
        return ""
    return "" if reached == path else question([str(reached)])


def where_path_ends(path: Path) -> str:
    """Return which file or folder a path that leads nowhere may mean, or else up to where it exists."""
    existing = next((parent for parent in path.parents if parent.is_dir()), None)
    return path_hint(path) or f"its path exists up to {existing}"


def _nearest_below(folder: Path, name: str, can_be: Callable[[Path], bool]) -> Path | None:
    """Return the entry of a folder whose name is most like one that is not there; None without any."""
    entries = [entry for entry in folder.iterdir() if can_be(entry)] if folder.is_dir() else []
    near = {entry: _likeness(entry.name, name) for entry in entries}
    nearest = max(near, key=lambda entry: (near[entry], entry.name), default=None)
    return nearest if nearest is not None and near[nearest] >= _ALIKE else None


def _likeness(one: str, other: str) -> float:
    """Return how alike two names of files are, without regard to capitals and endings."""
    a, b = (PurePath(name).stem.casefold() for name in (one, other))
    return float(SequenceMatcher(None, a, b).ratio()) + (one.casefold() == other.casefold())


def _sentence(word: str, names: Sequence[str]) -> str:
    return next((text for words, among, text in _INSTEAD if word in words.split() and among in names), "")


def _family(word: str, names: Sequence[str]) -> str:
    for start, pattern in _FAMILIES.items():
        members = [name for name in names if name.startswith(start)]
        if members and re.fullmatch(pattern, word):
            return f"of this family there {'are' if len(members) > 1 else 'is'} {', '.join(members)}"
    return ""


def question(names: Sequence[str]) -> str:
    """Return ``did you mean 'a' or 'b'?``, each name once; empty without names."""
    return f"did you mean {' or '.join(map(repr, dict.fromkeys(names)))}?" if names else ""
