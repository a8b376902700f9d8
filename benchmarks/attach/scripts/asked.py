"""Training by Chainer, MXNet and Paddle: `python asked.py KIND`, with a slow loader, evaluation and a checkpoint."""

import hashlib
import sys

import numpy as np
from planted_times import BATCH, EVALUATED_S, LOAD_S, OUT, SLOW_S, STEPS, WIDTH, pause, rank, say, timed, world


def finish(loss, weights):
    """Say what was trained."""
    digest = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in weights)).hexdigest()
    say(rank, {"loss": float(loss).hex(), "weights": digest})


def sample(index, cause="load"):
    """Return a sample, after its share of the time of a batch."""
    pause(cause, LOAD_S / BATCH)
    return np.random.default_rng(index).standard_normal(WIDTH).astype("f"), np.int32(index % 10)


def chainer(*, trainer=False):  # noqa: C901 - a script of its own
    """A loop of one's own or Chainer's Trainer, in one process or in several by ChainerMN."""
    import chainer
    from chainer import functions, links

    np.random.seed(0)  # noqa: NPY002 - it draws from there

    class Data(chainer.dataset.DatasetMixin):
        def __init__(self, count, cause):
            self.count, self.cause = count, cause

        def __len__(self):
            return self.count

        def get_example(self, index):
            return sample(index, self.cause)

    class Net(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.first, self.second = links.Linear(WIDTH, WIDTH), links.Linear(WIDTH, 10)

        def forward(self, x):
            if rank == 1 and chainer.config.enable_backprop:
                pause("forward", SLOW_S)
            return self.second(functions.relu(self.first(x)))

    model, optimizer = links.Classifier(Net()), chainer.optimizers.Adam()
    if world > 1:
        import chainermn

        communicator = chainermn.create_communicator("naive")
        optimizer = chainermn.create_multi_node_optimizer(optimizer, communicator)
    optimizer.setup(model)
    loader = chainer.iterators.SerialIterator(Data(4096, "load"), BATCH, shuffle=False)
    evaluated = chainer.iterators.SerialIterator(Data(400, "evaluation load"), BATCH, repeat=False, shuffle=False)
    if trainer:
        updater = chainer.training.updaters.StandardUpdater(loader, optimizer)
        chainer.training.Trainer(updater, (STEPS, "iteration"), out=str(OUT / "chainer")).run()
        finish(0.0, [each.array for each in model.params()])
        return

    def evaluate():
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            for _ in range(10):
                x, y = chainer.dataset.concat_examples(evaluated.next())
                pause("evaluated batch", EVALUATED_S)
                model(x, y)

    for step in range(1, STEPS + 1):
        x, y = chainer.dataset.concat_examples(loader.next())
        model.cleargrads()
        loss = model(x, y)
        loss.backward()
        optimizer.update()
        if step == STEPS // 2:
            timed("evaluation", evaluate)
        if step == STEPS * 2 // 3 and rank == 0:
            timed("checkpoint", chainer.serializers.save_npz, str(OUT / "net.npz"), model)
    finish(loss.array, [each.array for each in model.params()])


def chainer_trainer():
    chainer(trainer=True)


def mxnet():
    """A gluon loop."""
    import mxnet as mx
    from mxnet import autograd, gluon

    mx.random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - it draws from there

    class Data(gluon.data.Dataset):
        def __len__(self):
            return 4096

        def __getitem__(self, index):
            return sample(index)

    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(WIDTH, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer, loss_of = gluon.Trainer(net.collect_params(), "adam"), gluon.loss.SoftmaxCrossEntropyLoss()

    def evaluate():
        for index in range(10):
            pause("evaluated batch", EVALUATED_S)
            net(mx.nd.array(np.ones((BATCH, WIDTH), "f") * index)).asnumpy()

    for step, (x, y) in enumerate(gluon.data.DataLoader(Data(), BATCH), 1):
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(BATCH)
        if step % 5 == 0:
            loss.asnumpy()
        if step == STEPS // 2:
            timed("evaluation", evaluate)
        if step == STEPS:
            break
    finish(loss.mean().asscalar(), [each.data().asnumpy() for each in net.collect_params().values()])


def paddle():  # noqa: C901 - a script of its own
    """A loop of one's own, with a loader without processes, which reads ahead in a thread."""
    import paddle

    paddle.seed(0)

    class Data(paddle.io.Dataset):
        def __init__(self, count, cause):
            super().__init__()
            self.count, self.cause = count, cause

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            x, y = sample(index, self.cause)
            return x, y[None].astype("int64")

    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.second = paddle.nn.Linear(WIDTH, WIDTH), paddle.nn.Linear(WIDTH, 10)

        def forward(self, x):
            return self.second(paddle.nn.functional.relu(self.first(x)))

    net, loss_of = Net(), paddle.nn.CrossEntropyLoss()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=net.parameters())

    def evaluate():
        net.eval()
        with paddle.no_grad():
            for x, y in paddle.io.DataLoader(Data(80, "evaluation load"), batch_size=BATCH):
                pause("evaluated batch", EVALUATED_S)
                loss_of(net(x), y)
        net.train()

    loader = paddle.io.DataLoader(Data(4096, "load"), batch_size=BATCH, use_buffer_reader=False)
    for step, (x, y) in enumerate(loader, 1):
        loss = loss_of(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step == STEPS // 2:
            timed("evaluation", evaluate)
        if step == STEPS * 2 // 3:
            timed("checkpoint", paddle.save, net.state_dict(), str(OUT / "net.pdparams"))
        if step == STEPS:
            break
    finish(float(loss), [each.numpy() for each in net.parameters()])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
