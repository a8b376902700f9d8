"""``python -m steptime`` is the same program as ``steptime``."""

from steptime.cli.app import main

main()
