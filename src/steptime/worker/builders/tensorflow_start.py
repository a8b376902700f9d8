"""What is settled before TensorFlow, of whatever version, is imported."""

import os


def before_import():
    """Quieten TensorFlow and choose its kernels, unless the user's shell has done so."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # TensorFlow leaves oneDNN off where the processor has no AVX-512, although LeNet-5 takes 3.2 times as long then.
    # TensorFlow 1.15 has no such switch.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
