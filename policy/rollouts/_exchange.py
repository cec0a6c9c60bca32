"""Exchange of completions between agents that train simultaneously on the same prompts (HACPO)."""

import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...rm.backbones.tokenization import pad
from ...rm.errors import UNREADABLE, DataError, UsageError
from ...rm.types import content_hash
from ..decoding.search import derived
from ..scaffolds._scaffold import Rollouts
from ..step.forward import CompletionBatch

PAUSE, PATIENCE = 0.1, 5.0  # seconds between checks for a partner's file, and before waiting is logged
NEAR = 1e-3  # tolerance of recomputed log-probabilities, in nats


class Written(NamedTuple):
    """Completions that one agent generated in a step, ordered by prompt."""

    completions: list[list[int]]
    logprobs: list[list[float]]
    """Log-probability of every token under the agent that generated it, in nats, at generation time."""


class Asked(NamedTuple):
    """Prompts and tokenizer of a step, which must be equal for agents to learn from each other."""

    prompts: str
    """Hash of the prompts' tokens, in order."""
    tokenizer: str
    """Hash of the vocabulary."""


def exchanged(
    folder: Path,
    *,
    agent: int,
    agents: int,
    timeout: float,
    seed: int = 0,
    log: Callable[[str], None] = lambda message: None,
) -> Rollouts:
    """Create a rollout function: of n G completions per prompt the first G are the policy's, the rest its partners'.

    Each of the n agents trains in its own process, on the same prompts in the same order and with the same tokenizer;
    models may differ. In each step an agent writes its completions and their log-probabilities atomically to a file in
    `folder`, and waits at most `timeout` seconds for its partners' files; `log` gets a message about long waits.
    Partners' completions are ordered by agent number. In evaluation all are the policy's own. HACPO: arXiv:2603.02604
    Sampling depends on the seed, the step and the agent, so that an agent resumed from a checkpoint generates the same
    completions again: its own existing file must be equal and is kept.
    """
    if not 0 <= agent < agents:
        raise UsageError(f"agents are numbered from 0 to {agents - 1}, got {agent}")

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        ids, size = trainer._tokenize_prompts(list(prompts))[0], int(trainer.num_generations)
        if not trainer.model.training:
            return {"prompt_ids": ids, "completion_ids": _draw(trainer, ids), "logprobs": None}
        each, rest = divmod(size, agents)
        if rest:
            raise UsageError(f"{agents} agents cannot share {size} completions to a prompt; make them a multiple")
        step, groups = trainer.state.global_step, len(ids) // size
        asked = Asked(content_hash(ids[::size]), str(trainer.encoder.contract.tokenizer))
        paths = [folder / f"step-{step:06d}-agent-{index}.safetensors" for index in range(agents)]
        mine = [prompt_ids for index, prompt_ids in enumerate(ids) if index % size < each]
        written = {agent: keep(paths[agent], _write(trainer, mine, derived(seed, step + 1, agent)), asked)}
        partners, started = [index for index in range(agents) if index != agent], time.monotonic()
        for partner in partners:
            wait(paths[partner], partner, step, timeout, log)
            written[partner] = read(paths[partner], asked, groups * each)
        trainer._note("exchange/waited", time.monotonic() - started)
        rows = [range(index * each, (index + 1) * each) for index in range(groups)]
        whose = [(writer, row) for agent_rows in rows for writer in (agent, *partners) for row in agent_rows]
        return {
            "prompt_ids": ids,
            "completion_ids": [written[writer].completions[row] for writer, row in whose],
            "logprobs": [written[writer].logprobs[row] for writer, row in whose],
            "own": [writer == agent for writer, _ in whose],
            "writer": ["policy" if writer == agent else f"agent {writer}" for writer, _ in whose],
        }

    return rollout


# ---- the agent's own completions ----


def _draw(trainer: Any, prompts: list[list[int]]) -> list[list[int]]:
    return trainer._generate_single_turn(prompts, None, {}, num_generations=1)[0]


def _write(trainer: Any, prompts: list[list[int]], seed: int) -> Written:
    """Generate one completion per prompt, and compute its log-probabilities under the policy."""
    device = trainer.accelerator.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        completions = _draw(trainer, prompts)
    padded = pad([[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)])
    start = torch.tensor([len(prompt) for prompt in prompts])
    rows = CompletionBatch(*(tensor.to(device) for tensor in (*padded, start, pad(completions).attention)))
    logprobs: Float[Tensor, "N L"] = trainer._read(trainer.model, rows).logprob.float().cpu()
    return Written(
        completions, [row[: len(completion)].tolist() for row, completion in zip(logprobs, completions, strict=True)]
    )


# ---- files ----


def keep(path: Path, written: Written, asked: Asked) -> Written:
    """Write the agent's file of this step, or return the existing one; raise `DataError` if its contents differ."""
    if not path.exists():
        tensors = {
            "tokens": torch.tensor([*chain(*written.completions)], dtype=torch.int32),
            "lengths": torch.tensor([len(completion) for completion in written.completions], dtype=torch.int32),
            "logprobs": torch.tensor([*chain(*written.logprobs)], dtype=torch.float32),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        # rename after writing, so that partners never read a partial file
        unfinished = path.with_name(f".{path.name}.unfinished")
        save_file(tensors, unfinished, metadata=asked._asdict())
        unfinished.replace(path)
        return written
    before = read(path, asked, len(written.completions))
    pairs = zip(chain(*before.logprobs), chain(*written.logprobs), strict=False)
    if before.completions != written.completions or any(abs(logprob - other) > NEAR for logprob, other in pairs):
        raise DataError(
            f"{path} holds other completions than this agent has just written: it is of another run, or this machine "
            "does not repeat its draws; name an empty folder for a new run, or delete this agent's files from this "
            "step on"
        )
    return before


def wait(path: Path, partner: int, step: int, timeout: float, log: Callable[[str], None]) -> None:
    """Wait until the partner's file exists; raise `DataError` after `timeout` seconds."""
    started, later = time.monotonic(), PATIENCE
    while not path.exists():
        waited = time.monotonic() - started
        if waited >= timeout:
            raise DataError(
                f"{path}: agent {partner} has not written its completions of step {step} in {timeout:g} seconds; see "
                "that it runs with the same folder, number of agents and batch settings, resume it, and then this one"
            )
        if waited >= later:
            log(f"step {step}: waiting for the completions of agent {partner} for {waited:.0f} seconds")
            later *= 2
        time.sleep(min(PAUSE, timeout))


def read(path: Path, asked: Asked, number: int) -> Written:
    """Read a step's file; raise `DataError` if it is damaged or does not match prompts, tokenizer or size."""
    try:
        with safe_open(path, "pt") as file:
            of = Asked(**file.metadata())
            tokens, lengths, logprobs = (file.get_tensor(name) for name in ("tokens", "lengths", "logprobs"))
            if not all(tensor.ndim == 1 for tensor in (tokens, lengths, logprobs)) or (lengths < 0).any():
                raise ValueError("its tensors are no rows")
            if len(tokens) != len(logprobs) or int(lengths.sum()) != len(tokens):
                raise ValueError("its lengths are not those of its completions")
    except (*UNREADABLE, SafetensorError) as error:
        raise DataError(f"{path}: no completions of an agent ({error}); delete it and resume that agent") from error
    if of.tokenizer != asked.tokenizer:
        raise DataError(
            f"{path}: written with another tokenizer ({of.tokenizer}, here {asked.tokenizer}); train agents that share "
            "one"
        )
    if of.prompts != asked.prompts:
        raise DataError(
            f"{path}: its completions are of other prompts ({of.prompts}, here {asked.prompts}); give all agents the "
            "same data, seed, chat template and batch settings, and a folder of their own"
        )
    if len(lengths) != number:
        raise DataError(
            f"{path}: {len(lengths)} completions, expected {number}; give all agents the same number of completions"
        )
    sizes = lengths.tolist()
    return Written(*([part.tolist() for part in tensor.split(sizes)] for tensor in (tokens, logprobs)))
