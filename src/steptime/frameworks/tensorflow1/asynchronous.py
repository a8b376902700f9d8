"""The strategy ``ps_async``: every worker applies its gradients to the servers' weights when it has them."""

from steptime.frameworks.tensorflow1.cluster import server_device
from steptime.frameworks.tensorflow1.served import Served


class Asynchronous(Served):
    """Updates of one variable come one after the other, but different variables may see them in different orders.

    Server 0 counts the updates. The count is read when the weights are pulled and again behind the worker's own
    update: what others have added meanwhile is the update's staleness.
    """

    asynchronous = True

    def _update(self, optimizer, pairs):
        tf1 = self._tf1
        with tf1.device(server_device(0)):
            pulled = self._updates.read_value()
        applied = optimizer.apply_gradients(pairs)
        with tf1.control_dependencies([applied]), tf1.device(server_device(0)):
            others = tf1.convert_to_tensor(self._updates.assign_add(1)) - 1 - pulled
        return [others]

    def begun(self, session):
        # Not earlier: worker 0's first loss, which is compared with the reference, is that of the initial weights.
        self.announce(session)
