"""What is sent in a step is Horovod's own doing, whatever library computes."""

from steptime.libraries.horovod.communication import POLICIES

__all__ = ["POLICIES"]
