"""The adapters in ``recipes/adapters/``: killed and started again, they end as if never killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from outcomes import committed, rows, same_runs
from warm_python import executable

ADAPTERS = Path(__file__).parents[2] / "recipes" / "adapters"

# Runs a script that is killed at a call of `end_batch`.
RUNNING = """
import os, runpy, signal, sys
import hooktrainer

kill, script, *words = sys.argv[1:]

class Killed(hooktrainer.Session):
    def end_batch(self, *args, **kwargs):
        if self.progress.batches + 1 == int(kill):
            self.checkpoints.wait()  # so that the next one resumes
            os.kill(os.getpid(), signal.SIGKILL)
        return super().end_batch(*args, **kwargs)

hooktrainer.Session = Killed
sys.argv = [script, *words]
sys.path.insert(0, os.path.dirname(script))
runpy.run_path(script, run_name="__main__")
"""


def is_resumed_exactly(script: Path, where: Path, kills: list[int], *words: str) -> bool:
    """Whether a script that is killed at these batches ends as one that is not."""

    def start(place: str, kill: int) -> int:
        program = [executable(), "-c", RUNNING, str(kill), str(script)]
        (where / place).mkdir(exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        options = {"cwd": where / place, "capture_output": True, "text": True, "timeout": 300}
        done = subprocess.run([*program, "--directory=run", *words], env=environment, **options)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode

    assert start("whole", 0) == 0
    for kill in kills:
        assert start("killed", kill) == -signal.SIGKILL
        assert committed(where / "killed/run")
    assert start("killed", 0) == 0
    whole, killed = where / "whole/run", where / "killed/run"
    return same_runs(whole, killed) and rows(whole) == rows(killed)


@pytest.mark.slow
def test_ppo_in_a_single_file(tmp_path):
    words = ("--total-frames=640", "--num-envs=2", "--num-steps=32", "--save-interval=128")
    assert is_resumed_exactly(ADAPTERS / "ppo_single_file.py", tmp_path, [4, 8], *words)


@pytest.mark.slow
def test_a_loop_of_fabric(tmp_path):
    pytest.importorskip("lightning_fabric")
    words = ("--epochs=2", "--batch-size=96", "--save-interval=300")
    assert is_resumed_exactly(ADAPTERS / "fabric_loop.py", tmp_path, [6, 13], *words)


TRANSFORMERS = """
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers_trainer import train

set_seed(0)
sizes = {"n_layer": 1, "n_head": 1, "n_embd": 8, "vocab_size": 16, "n_positions": 8}
model = GPT2LMHeadModel(GPT2Config(**sizes))
rows = torch.randint(16, (20, 6), generator=torch.Generator().manual_seed(0))
data = [{"input_ids": row, "labels": row} for row in rows]
args = TrainingArguments(
    "hf", max_steps=14, per_device_train_batch_size=4, logging_steps=3, save_strategy="no",
    report_to="none", use_cpu=True, disable_tqdm=True,
)
train(Trainer(model, args, train_dataset=data), "run", save_interval=2, log_interval=2)
"""


@pytest.mark.slow
def test_a_trainer_of_transformers(tmp_path):
    pytest.importorskip("transformers")
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ADAPTERS)!r})\n{TRANSFORMERS}")
    # Of epochs of five steps: within the first, and at the end of the second.
    assert is_resumed_exactly(script, tmp_path, [5, 11])


TRL = """
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed
from transformers_trainer import train

words = [f"w{number}" for number in range(14)]
known = {word: number for number, word in enumerate(["<pad>", "<eos>", *words])}
tokenizer = Tokenizer(models.WordLevel(known, unk_token="<pad>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
)
set_seed(0)
sizes = {"n_layer": 1, "n_head": 1, "n_embd": 8, "vocab_size": 16, "n_positions": 16}
model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=1))
prompts = [" ".join(words[(row + word) % 14] for word in range(3)) for row in range(20)]
given = {
    "max_steps": 14, "per_device_train_batch_size": 4, "logging_steps": 3, "save_strategy": "no",
    "report_to": "none", "use_cpu": True, "disable_tqdm": True, "bf16": False,
}
"""
SFT = """
from trl import SFTConfig, SFTTrainer

data = Dataset.from_dict({"text": prompts})
args = SFTConfig("hf", **given)
trainer = SFTTrainer(model, args, train_dataset=data, processing_class=tokenizer)
"""
# Completions are reused for four steps, so that checkpoints fall in between.
GRPO = """
from trl import GRPOConfig, GRPOTrainer

def reward(completions, **_):
    return [float(len(set(one.split()))) for one in completions]

data = Dataset.from_dict({"prompt": prompts})
given |= {"num_generations": 2, "num_iterations": 2, "steps_per_generation": 2}
args = GRPOConfig("hf", max_completion_length=6, learning_rate=1e-2, **given)
trainer = GRPOTrainer(model, reward, args, train_dataset=data, processing_class=tokenizer)
"""


@pytest.mark.slow
@pytest.mark.parametrize("made", [SFT, GRPO], ids=["sft", "grpo"])
def test_a_trainer_of_trl(tmp_path, made):
    pytest.importorskip("trl")
    script = tmp_path / "script.py"
    trained = 'train(trainer, "run", save_interval=2, log_interval=2)'
    path = f"import sys\nsys.path.insert(0, {str(ADAPTERS)!r})\n"
    script.write_text(path + TRL + made + trained)
    assert is_resumed_exactly(script, tmp_path, [5, 11])
