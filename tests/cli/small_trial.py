"""A trial that tests of several verbs put into results folders."""

from steptime.study.trial import Trial

TRIAL = Trial(
    framework="reference",
    strategy="single",
    workload="mlp",
    input_shape=(784,),
    classes=10,
    dataset=None,
    loader="synthetic",
    device="cpu",
    precision="fp32",
    workers=1,
    batch_per_worker=8,
)
