"""Peaks of this machine: the products of matrices that a device makes per second, by the quickest library here."""

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import steptime
from steptime.attached.step_flops import settings_of_files
from steptime.catalog.accelerators import find_accelerators
from steptime.catalog.manifest import load_manifests
from steptime.environments.subprocesses import answer_in, ask
from steptime.errors import EnvironmentFailure
from steptime.execution.progress import Observer
from steptime.foreign_writers import require_folder_for_launches
from steptime.launchers.process_env import thread_pools
from steptime.results.machine import fingerprint
from steptime.results.peaks import PEAKS, Peak, StoredPeaks, setting_of
from steptime.results.store import Store
from steptime.runner.preparation import ready_interpreter
from steptime.study.study import ENVIRONMENT_KEYS

Setting = tuple[str, str, int]
"""Device, precision and threads."""


_PROGRAM = Path(steptime.__file__).parent / "worker" / "matrix_product.py"


_SECONDS = 1.0


_PEAK_LIMIT_S = 300.0


_LIBRARIES = ("pytorch", "jax", "chainer")
"""Frameworks whose environments have one that the program knows, the quickest first; the core has NumPy."""


def settings_of_machine() -> list[Setting]:
    """Return what is worth knowing of this machine: its processor with one and all cores, and its GPU."""
    cores = int(fingerprint()["cores"])
    on_processor = [("cpu", "fp32", count) for count in dict.fromkeys((1, cores))]
    return [*on_processor, *([("cuda", each, 0) for each in ("fp32", "tf32", "bf16", "fp16")] if _has_gpu() else [])]


def measure_peaks(settings: Iterable[Setting], observer: Observer, given: Sequence[Path] = ()) -> list[Peak]:
    """Measure each setting on this machine, which should do nothing else meanwhile; one that fails is named.

    Args:
        settings: to be measured.
        observer: of what is done.
        given: the user's interpreters, asked before steptime's own.
    """
    wanted = list(dict.fromkeys(settings))
    observer.stage("Multiplying matrices", len(wanted))
    found = []
    for setting in wanted:
        name = "{} {}{}".format(setting[0], setting[1], f", {setting[2]} threads" if setting[2] else "")
        observer.working_on(name)
        try:
            found.append(_measured(setting, given))
        except EnvironmentFailure as error:
            observer.note(f"{name}: {error}")
        observer.finished(name, ok=bool(found) and found[-1].setting == setting)
    return found


def measure_for(store: Store, observer: Observer) -> list[Peak]:
    """Measure what the MFU of a results folder's trials, or of its attached run, needs, and keep it there.

    Raises StoreError where the folder is in use, another machine's, or open to other users.
    """
    require_folder_for_launches(store.path)
    with store.lock():
        store.set_machine(fingerprint())
        chosen = [each for key in ENVIRONMENT_KEYS for each in (store.study_json.get(key) or {}).values()]
        given = [Path(each["python"]) for each in chosen if each.get("python") and not each.get("container")]
        own = store.attached()
        settings = [*map(setting_of, store.trials()), *(settings_of_files(own[1]) if own else ())]
        found = measure_peaks(settings, observer, given)
        before = StoredPeaks.model_validate(store.get(PEAKS) or {}).peaks
        again = {each.setting for each in found}
        kept = [*(each for each in before if each.setting not in again), *found]
        store.put(PEAKS, StoredPeaks(peaks=kept).model_dump(mode="json"))
    return found


def _measured(setting: Setting, given: Sequence[Path]) -> Peak:
    device, precision, threads = setting
    said = f"no environment multiplies {precision} matrices on {device}; steptime env create pytorch --device {device}"
    for interpreter in (*given, *_interpreters(device)):
        command: list[str | Path] = [interpreter, _PROGRAM, device, precision, str(_SECONDS)]
        code, said = ask(command, _PEAK_LIMIT_S, None, **thread_pools(max(1, threads)))
        answer = answer_in(said)
        if code == 0 and answer is not None:
            return Peak(device=device, precision=precision, threads=threads, **answer)
    raise EnvironmentFailure(said.strip().splitlines()[-1] if said.strip() else f"{device} {precision}: no answer")


def _interpreters(device: str) -> Sequence[Path]:
    accelerators = find_accelerators()
    found = []
    for name in (*_LIBRARIES, "reference"):
        with contextlib.suppress(EnvironmentFailure):
            if name in load_manifests() and (own := ready_interpreter(name, None, device, accelerators)):
                found.append(own)
    return found


def _has_gpu() -> bool:
    return len(find_accelerators()) > 0
