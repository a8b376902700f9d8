"""Every official script that ``race_official.py`` can run, by the name that it takes."""

from official.classic_scripts import CLASSIC_SCRIPTS
from official.script import OfficialScript
from official.torch_scripts import TORCH_SCRIPTS
from official.xla_scripts import XLA_SCRIPTS

OFFICIAL_SCRIPTS: dict[str, OfficialScript] = {**TORCH_SCRIPTS, **XLA_SCRIPTS, **CLASSIC_SCRIPTS}
