"""The callbacks in the real Lightning and transformers: they record the steps of the training loop and no others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import steptime

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "attach"))
from kinds import libraries_python

CALLBACKS = Path(__file__).parents[2] / "examples" / "callbacks"
STEPS = 24
BEGIN = f"""
import torch
from torch.nn.functional import mse_loss

torch.manual_seed(0)
torch.set_num_threads(1)
samples = [(torch.randn(8), torch.randn(8)) for _ in range(4 * {STEPS})]

def by_hand(net):
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for x, y in torch.utils.data.DataLoader(samples[:20], 4):
        mse_loss(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
SCRIPTS = {
    "lightning_block": """
import lightning
from lightning_block import RecordedFit

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)

    def training_step(self, batch, _):
        return mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

module = Module()
by_hand(module.net)
options = dict(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu")
trainer = lightning.Trainer(callbacks=[RecordedFit("runs")], enable_model_summary=False, **options)
trainer.fit(module, torch.utils.data.DataLoader(samples, 4))
by_hand(module.net)
""",
    "trainer_block": """
import transformers
from trainer_block import RecordedLoop

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)

    def forward(self, x, labels):
        return {"loss": mse_loss(self.net(x), labels)}

model = Model()
by_hand(model.net)
options = dict(num_train_epochs=1, per_device_train_batch_size=4, report_to=[], save_strategy="no", use_cpu=True)
arguments = transformers.TrainingArguments("out", disable_tqdm=True, **options)
rows = [{"x": x, "labels": y} for x, y in samples]
transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[RecordedLoop("runs")]).train()
by_hand(model.net)
""",
}


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of an environment with both libraries over PyTorch's, which the benchmark of kinds uses as well."""
    try:
        return libraries_python("pytorch")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"missing Lightning and transformers: {error}")


def test_each_callback_is_here():
    assert {path.stem for path in CALLBACKS.glob("*.py")} == set(SCRIPTS)


@pytest.mark.costly
@pytest.mark.framework("pytorch")
@pytest.mark.parametrize("module", SCRIPTS)
def test_a_callback_records_the_steps_of_the_loop_alone(module, python, tmp_path):
    path = os.pathsep.join([str(CALLBACKS), str(Path(steptime.__file__).parents[1])])
    done = subprocess.run(
        [python, "-c", BEGIN + SCRIPTS[module]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert f"steptime: {STEPS} steps recorded: steptime report {tmp_path / 'runs'}" in done.stderr
