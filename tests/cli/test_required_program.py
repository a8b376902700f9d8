"""A command that cannot be started is named as what it is, with the exit code of a shell."""

import pytest

from steptime.catalog.manifest import load_manifests
from steptime.cli.required_program import _IN_ENVIRONMENT, require_program
from steptime.errors import LaunchError


@pytest.fixture(autouse=True)
def _scripts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('trained')")
    (tmp_path / "run.sh").write_text("python train.py")
    (tmp_path / "folder").mkdir()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("VAR=1", "it sets a variable; write it before steptime, or begin with env: env VAR=1"),
        ("CUDA_VISIBLE_DEVICES=0,1", "it sets a variable"),
        ("python train.py --x 1", "in one word; leave the quotes out, or begin with a shell: bash -c 'python train.py"),
        ("cd x && python train.py", "in one word"),
        ("OMP_NUM_THREADS=1 python train.py", "begin with a shell: bash -c 'OMP_NUM_THREADS=1 python train.py'"),
        ("train.py", "it is a script; begin with its interpreter, as python train.py"),
        ("./train.py", "it is a script"),
        ("./run.sh", "begin with what runs it, as bash ./run.sh"),
        ("run.sh", "begin with what runs it, as bash run.sh"),
        ("./folder", "it is a folder"),
        ("cd", "it is a word of the shell"),
        ("source", "it is a word of the shell"),
        ("pyhton3", "no such program on the PATH; did you mean 'python3'?"),
        ("my-trainer", "no such program on the PATH; activate its environment, or write as .venv/bin/my-trainer"),
        ("bin/pyhton", "no such program"),
        ("--lines", "it is an option; put steptime's options before --, and a program after it"),
    ],
)
def test_a_word_that_is_not_a_program_is_named_as_what_it_is(word, said):
    with pytest.raises(LaunchError) as caught:
        require_program(word)

    assert str(caught.value).startswith(f"{word} cannot be started: ")
    assert said in str(caught.value)
    assert caught.value.exit_code == 127


@pytest.mark.parametrize(
    ("word", "environment"), [("torchrun", "pytorch"), ("deepspeed", "deepspeed"), ("horovodrun", "horovod_pytorch")]
)
def test_an_environment_that_brings_the_program_is_named(tmp_path, monkeypatch, word, environment):
    for name, value in (("PATH", str(tmp_path)), ("STEPTIME_CACHE", str(tmp_path / "cache"))):
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match=f"make one that has it: steptime env create {environment}$"):
        require_program(word)

    own = tmp_path / "cache" / "environments" / "mine" / "bin"
    own.mkdir(parents=True)
    (own / word).touch(mode=0o600)
    with pytest.raises(LaunchError, match="make one"):
        require_program(word)

    (own / word).chmod(0o700)
    with pytest.raises(LaunchError, match=f'an environment of steptime has it: PATH={own}:"\\$PATH" steptime ...$'):
        require_program(word)


def test_a_program_of_a_package_is_what_its_environment_is_named_for():
    assert set(_IN_ENVIRONMENT.values()) <= set(load_manifests())


@pytest.mark.parametrize("word", ["python3", "bash", "env"])
def test_a_program_is_not_refused(word):
    require_program(word)


def test_a_script_that_may_be_run_is_not_refused(tmp_path):
    (tmp_path / "run.sh").chmod(0o700)

    require_program("./run.sh")
