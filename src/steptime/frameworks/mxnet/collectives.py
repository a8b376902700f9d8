"""Messages as MXNet's key-value store carries gradients: pushed to servers, which update, and pulled."""

import mxnet

from steptime.frameworks.mxnet.key_value_store import keep_store_alive
from steptime.worker.back_end import FED, BackEnd, Message


class KeyValueStoreBackEnd(BackEnd):
    """One worker in the store ``dist_sync``, whose servers update as they do in training, but without momentum."""

    def __init__(self):
        self._store = mxnet.kv.create("dist_sync")
        # The decay takes all of the weight away, and what the step takes away is the sum with its sign turned: the
        # weight becomes the sum of all pushes.
        self._store.set_optimizer(mxnet.optimizer.SGD(learning_rate=1.0, rescale_grad=-1.0, wd=1.0))
        self._messages = 0

    def message(self, operation, count):
        if operation != "push_pull":
            raise ValueError("%r is no operation of a key-value store" % operation)
        self._messages += 1
        return KeyValuePushPull(self._store, self._messages, count)

    def facts(self):
        return {"framework_version": mxnet.__version__, "kvstore": "dist_sync"}

    def close(self):
        self._store = None

    def abort(self):
        """Stay in the store until this process dies: leaving waits for the others."""
        keep_store_alive(self._store)


class KeyValuePushPull(Message):
    """A gradient under a key, and the weight that comes back.

    MXNet pulls into the memory that it pushed from before it copies into the weight: what was a gradient is the
    weight afterwards. In training nobody looks, since the next backward pass writes a new one.
    """

    becomes = FED

    def __init__(self, store, key, count):
        self._store, self._key = store, key
        self._gradient, self._weight = mxnet.nd.zeros(count), mxnet.nd.zeros(count)
        store.init(key, self._weight)

    def fill(self, values):
        self._gradient[:] = values
        self._gradient.wait_to_read()

    def run(self):
        self._store.pushpull(self._key, self._gradient, out=self._weight)
        self._weight.wait_to_read()

    def result(self):
        return self._weight.asnumpy()
