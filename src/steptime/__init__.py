"""Race distributed-training frameworks, see where each step's time goes, know how it will scale."""

__version__ = "0.1.0"
