"""Stands for the models of Chainer's CIFAR example: the plain loop's model, data made once, and the marks of steps."""

import os

import chainer
import numpy
import race_marks


def _marked(update):
    def marked(*arguments):
        update(*arguments)
        race_marks.note()

    return marked


def _make_data():
    """Put random images where Chainer looks for CIFAR-10 before it downloads anything."""
    chainer.dataset.set_dataset_root(os.environ["RACE_FOLDER"])
    folder = chainer.dataset.get_dataset_directory("pfnet/chainer/cifar")
    batch, steps = int(os.environ["RACE_BATCH"]), int(os.environ["RACE_STEPS"])
    stream = numpy.random.RandomState(0)
    arrays = {}
    for part, count in (("train", batch * (steps + 1)), ("test", batch)):
        arrays[part + "_x"] = stream.randint(0, 256, (count, 3 * 32 * 32)).astype(numpy.uint8)
        arrays[part + "_y"] = stream.randint(0, 10, count).astype(numpy.uint8)
    numpy.savez(os.path.join(folder, "cifar-10.npz"), **arrays)


_make_data()
chainer.training.updaters.StandardUpdater.update = _marked(chainer.training.updaters.StandardUpdater.update)
