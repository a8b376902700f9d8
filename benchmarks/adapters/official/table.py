"""Every official script that ``race_official.py`` can run, by the name that it takes."""

from official.script import OfficialScript
from official.torch_scripts import TORCH_SCRIPTS

OFFICIAL_SCRIPTS: dict[str, OfficialScript] = {**TORCH_SCRIPTS}
