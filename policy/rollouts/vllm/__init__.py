"""vLLM rollouts: completions from a server in a separate process, restarted with the saved policy during training."""

import importlib.util
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import TrainerCallback

from ....rm.errors import UsageError
from ...step.forward import frozen_copy
from ...types import RolloutSource
from .completions import server_rollouts
from .server_process import HOST, ServerProcess

PYTHON = "REWARDLAB_VLLM_PYTHON"
"""Environment variable with the path of a Python interpreter with vLLM, if the current one has no vLLM."""
SERVER, NAME, LOG, POLICY = "vllm.entrypoints.openai.api_server", "policy", "vllm.log", "served_policy"
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def vllm(
    *,
    every: int,
    python: str = "",
    options: str = "--enforce-eager --gpu-memory-utilization 0.3",
    seconds: float = 600.0,
    folder: str = "",
    seed: int = 0,
) -> RolloutSource:
    """Generate completions with a server that is restarted with the current policy every `every` steps.

    Between restarts completions are those of an older policy: ratios are relative to the log-probabilities that the
    server returns, and `rollouts/lag` is the age of that policy in steps. Evaluation always uses the current policy.
    `rollouts/restart_seconds` is the time for saving and starting. `python` runs vLLM; default: $REWARDLAB_VLLM_PYTHON
    or this interpreter; `options` are further flags of vLLM's server, whose output goes to vllm.log in the run folder;
    one start takes at most `seconds`. The policy is saved in a folder below `folder`, by default the run folder, and
    removed at the end.
    """
    if every < 1:
        raise ValueError(f"vllm: `every`, the steps between restarts of the server, must be at least 1, got {every}")
    interpreter, words = _interpreter(python), shlex.split(options)
    return _Rollouts(every, interpreter, words, seconds=seconds, folder=folder, seed=seed)


class _Rollouts(TrainerCallback):
    """A rollout function with a vLLM server. The server stops after training and after a final evaluation."""

    def __init__(self, every: int, python: str, options: Sequence[str], *, seconds: float, folder: str, seed: int):
        self.every, self.python, self.options, self.seconds, self.seed = every, python, options, seconds, seed
        self.parent, self.training = folder, True
        self.folder = Path()
        """Folder of the served policy, set at the first call."""
        self.server: ServerProcess | None = None
        self.step = 0
        """Step of the served policy."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        if self.server is None:
            self.server = self._new_server(trainer.run_folder)
            trainer.add_callback(self)
        step = trainer.state.global_step
        is_old = step - self.step >= (self.every if trainer.model.training else 1)
        if not self.server.is_running or is_old:
            start = time.monotonic()
            self.server.stop()
            save_policy(trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class, self.folder)
            self.server.start(self._command(str(trainer.language_model.dtype).removeprefix("torch.")))
            self.step = step
            trainer._note("rollouts/restart_seconds", time.monotonic() - start)
        trainer._note("rollouts/lag", step - self.step)
        return server_rollouts(self.server.url)(prompts, trainer)

    def _new_server(self, run_folder: Path) -> ServerProcess:
        self.folder = Path(self.parent) / f"{POLICY}-{os.getpid()}" if self.parent else run_folder / POLICY
        variables = {name: value for name, value in QUIET.items() if name not in os.environ}
        return ServerProcess(run_folder / LOG, seconds=self.seconds, environment=variables)

    def _command(self, dtype: str) -> Any:
        """Return a function of the port that returns the server's command line."""
        flags = ["--model", str(self.folder), "--served-model-name", NAME, "--dtype", dtype, "--seed", str(self.seed)]
        flags += ["--logprobs-mode", "processed_logprobs", "--host", HOST]
        return lambda port: [self.python, "-m", SERVER, *flags, "--port", str(port), *self.options]

    def stop(self) -> None:
        """Stop the server and delete the served policy; the next call starts a server again."""
        if self.server is not None:
            self.server.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def on_train_end(self, args, state, control, **kwargs):
        """Stop the server, since training needs no more completions."""
        self.training = False
        self.stop()

    def on_evaluate(self, args, state, control, **kwargs):
        """Stop the server after an evaluation that follows training, which may be the last evaluation."""
        if not self.training:
            self.stop()


def save_policy(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save the policy with its tokenizer as a plain model; an adapter is merged into a copy."""
    if isinstance(model, PeftModel):
        model = frozen_copy(model).merge_and_unload()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _interpreter(path: str) -> str:
    """Return the interpreter that runs the server; raise `UsageError` if none has vLLM."""
    interpreter = path or os.environ.get(PYTHON, "")
    if not (Path(interpreter).exists() if interpreter else importlib.util.find_spec("vllm")):
        missing = f"there is no interpreter {interpreter}" if interpreter else "this environment has no vLLM"
        raise UsageError(f"vllm: {missing}; set python= to the interpreter of an environment with vLLM, or {PYTHON}")
    return interpreter or sys.executable
