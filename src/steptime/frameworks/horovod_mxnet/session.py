"""One worker's training in MXNet, with an update that Horovod may average."""

import horovod
import mxnet

from steptime.frameworks.horovod_mxnet.averaging import AveragedUpdate
from steptime.worker.sessions.mxnet import MXNetSession, OwnUpdate, optimizer_settings


class HorovodSession(MXNetSession):
    """MXNet's session; the framework that it reports is Horovod."""

    def __init__(self, job, place):
        settings = optimizer_settings(job, place.workers)

        def update(bound):
            if job["strategy"] == "single":
                return OwnUpdate(settings, bound)
            return AveragedUpdate(settings, bound, job["options"], place)

        super(HorovodSession, self).__init__(job, place, mxnet.cpu(), update)

    def facts(self):
        facts = super(HorovodSession, self).facts()
        facts.update(framework_version=horovod.__version__, mxnet=mxnet.__version__)
        return facts
