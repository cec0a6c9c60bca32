"""Exchange of completions between agents that train simultaneously on the same prompts (HACPO)."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
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
from ..step.forward import CompletionBatch, PolicyOutputs
from ..types import RolloutSource
from ._partners import group_size

PAUSE, PATIENCE = 0.1, 5.0  # seconds between checks for a partner's file, and before waiting is logged
NEAR = 1e-3  # tolerance of recomputed log-probabilities, in nats
TEXTS = "texts"  # tensor of the UTF-8 bytes of the completions' texts as JSON


class AgentCompletions(NamedTuple):
    """Completions that one agent generated in a step, ordered by prompt."""

    completions: list[list[int]]
    logprobs: list[list[float]]
    """Log-probability of every token under the agent that generated it, in nats, at generation time."""
    texts: list[tuple[str, bool]] | None = None
    """Text of each completion, and whether it ends with an end-of-text token; for agents with other tokenizers."""


class StepHashes(NamedTuple):
    """Hashes of the prompts and the tokenizer of a step. Agents that exchange completions have the same prompts."""

    prompts: str
    """Hash of the prompts' tokens, in order."""
    tokenizer: str
    """Hash of the vocabulary."""
    messages: str = ""
    """Hash of the prompts before tokenization, for agents with other tokenizers."""


def exchange_rollouts(
    folder: Path,
    *,
    agent: int,
    agents: int,
    timeout: float,
    seed: int = 0,
    log: Callable[[str], None] = lambda message: None,
) -> RolloutSource:
    """Create a rollout function with n G completions per prompt: G by the policy, then those of its n - 1 partners.

    Each of the n agents trains in its own process, on the same prompts in the same order; models and tokenizers may
    differ (`retokenized`). In each step an agent writes its completions and their log-probabilities atomically to a
    file in `folder`, and waits at most `timeout` seconds for its partners' files; `log` gets a message about long
    waits. Partners' completions are ordered by agent number. In evaluation all are by the policy. HACPO:
    arXiv:2603.02604. Sampling depends on the seed, the step and the agent, so that an agent resumed from a checkpoint
    generates the same completions again: if it has already written its file, the contents must be equal.
    """
    if not 0 <= agent < agents:
        raise UsageError(f"agents are numbered from 0 to {agents - 1}, got {agent}")

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        ids, size = trainer._tokenize_prompts(list(prompts))[0], group_size(trainer.args, training=True)

        def generate(prompt_ids: list[list[int]]) -> list[list[int]]:
            return trainer._generate_single_turn(prompt_ids, None, {}, num_generations=1)[0]

        if not trainer.model.training:
            return {"prompt_ids": ids, "completion_ids": generate(ids), "logprobs": None}
        each, rest = divmod(size, agents)
        if rest:
            raise UsageError(f"--num_generations must be a multiple of the number of agents, {agents}, got {size}")
        step, groups = trainer.state.global_step, len(ids) // size
        hashes = StepHashes(
            content_hash(ids[::size]), str(trainer.encoder.contract.tokenizer), content_hash([*prompts][::size])
        )
        tokenizer = trainer.encoder.tokenizer
        paths = [folder / f"step-{step:06d}-agent-{index}.safetensors" for index in range(agents)]
        own_ids = [prompt_ids for index, prompt_ids in enumerate(ids) if index % size < each]
        device, read_policy = trainer.accelerator.device, partial(trainer._read, trainer.model)
        with seed_generators(derived(seed, step + 1, agent), device):
            completion_ids = generate(own_ids)
        texts = tokenizer.batch_decode(completion_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        ended = [completion[-1] in trainer.eos_token_ids for completion in completion_ids]
        logprobs = _logprobs(own_ids, completion_ids, read_policy, device)
        completions = AgentCompletions(completion_ids, logprobs, [*zip(texts, ended, strict=True)])
        by_agent = {agent: store(paths[agent], completions, hashes)}
        partners, start = [index for index in range(agents) if index != agent], time.monotonic()
        for partner in partners:
            wait(paths[partner], partner, step, timeout, log)
            by_agent[partner] = read(paths[partner], hashes, groups * each, tokenizer)
        trainer._note("exchange/waited", time.monotonic() - start)
        return {"prompt_ids": ids, **joined_groups(by_agent, agent, groups)}

    return rollout


def joined_groups(by_agent: Mapping[int, AgentCompletions], agent: int, groups: int) -> dict[str, list[Any]]:
    """Return completions, log-probabilities and agents, sorted by group and then in the order of `by_agent`."""
    each = len(by_agent[agent].completions) // groups
    rows = [range(index * each, (index + 1) * each) for index in range(groups)]
    sources = [(writer, row) for group_rows in rows for writer in by_agent for row in group_rows]
    return {
        "completion_ids": [by_agent[writer].completions[row] for writer, row in sources],
        "logprobs": [by_agent[writer].logprobs[row] for writer, row in sources],
        "own": [writer == agent for writer, _ in sources],
        "writer": ["policy" if writer == agent else f"agent {writer}" for writer, _ in sources],
    }


# ---- the agent's own completions ----


@contextmanager
def seed_generators(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the random number generators within the context, and restore their states after it."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _logprobs(
    prompts: Sequence[list[int]],
    completions: Sequence[list[int]],
    read: Callable[[CompletionBatch], PolicyOutputs],
    device: torch.device,
) -> list[list[float]]:
    """Compute the log-probabilities of completions under the policy, in nats."""
    padded = pad([[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)])
    start = torch.tensor([len(prompt) for prompt in prompts])
    rows = CompletionBatch(*(tensor.to(device) for tensor in (*padded, start, pad(completions).attention)))
    logprobs: Float[Tensor, "N L"] = read(rows).logprob.float().cpu()
    return [row[: len(completion)].tolist() for row, completion in zip(logprobs, completions, strict=True)]


# ---- files ----


def store(path: Path, completions: AgentCompletions, hashes: StepHashes) -> AgentCompletions:
    """Write the agent's file of this step, or return the existing one; raise `DataError` if its contents differ."""
    if not path.exists():
        tensors = {
            "tokens": torch.tensor([*chain(*completions.completions)], dtype=torch.int32),
            "lengths": torch.tensor([len(completion) for completion in completions.completions], dtype=torch.int32),
            "logprobs": torch.tensor([*chain(*completions.logprobs)], dtype=torch.float32),
        }
        if completions.texts is not None:
            tensors[TEXTS] = torch.tensor([*json.dumps(completions.texts).encode()], dtype=torch.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        # rename after writing, so that partners never read a partial file
        unfinished = path.with_name(f".{path.name}.unfinished")
        save_file(tensors, unfinished, metadata=hashes._asdict())
        unfinished.replace(path)
        return completions
    stored = read(path, hashes, len(completions.completions))
    pairs = zip(chain(*stored.logprobs), chain(*completions.logprobs), strict=False)
    if stored.completions != completions.completions or any(abs(logprob - other) > NEAR for logprob, other in pairs):
        raise DataError(
            f"{path} differs from the completions that this agent now generated: it is of another run, or sampling is "
            "not reproducible on this machine; use an empty folder for a new run, or delete this agent's files from "
            "this step on"
        )
    return stored


def wait(path: Path, partner: int, step: int, timeout: float, log: Callable[[str], None]) -> None:
    """Wait until the partner's file exists; raise `DataError` after `timeout` seconds."""
    start, next_log = time.monotonic(), PATIENCE
    while not path.exists():
        waited = time.monotonic() - start
        if waited >= timeout:
            raise DataError(
                f"{path}: agent {partner} has not written its completions of step {step} in {timeout:g} seconds; "
                "check that it runs with the same folder, number of agents and batch settings; resume both"
            )
        if waited >= next_log:
            log(f"step {step}: waiting for the completions of agent {partner} for {waited:.0f} seconds")
            next_log *= 2
        time.sleep(min(PAUSE, timeout))


def read(path: Path, hashes: StepHashes, number: int, tokenizer: Any = None) -> AgentCompletions:
    """Read a step's file; raise `DataError` if it is damaged or does not match the prompts or the group size.

    Completions of an agent with another tokenizer are encoded again by `tokenizer`, or refused without a `tokenizer`.
    """
    try:
        with safe_open(path, "pt") as file:
            stored = StepHashes(**file.metadata())
            tokens, lengths, logprobs = (file.get_tensor(name) for name in ("tokens", "lengths", "logprobs"))
            texts = json.loads(bytes(file.get_tensor(TEXTS).tolist())) if TEXTS in file.keys() else None  # noqa: SIM118
            if not all(tensor.ndim == 1 for tensor in (tokens, lengths, logprobs)) or (lengths < 0).any():
                raise ValueError("its tensors are not one-dimensional")
            if len(tokens) != len(logprobs) or int(lengths.sum()) != len(tokens):
                raise ValueError("the completion lengths do not add up to the number of tokens")
    except (*UNREADABLE, SafetensorError) as error:
        raise DataError(f"{path}: not an agent's completions ({error}); delete it and resume that agent") from error
    foreign = stored.tokenizer != hashes.tokenizer
    if foreign and (tokenizer is None or texts is None):
        raise DataError(
            f"{path}: written with another tokenizer ({stored.tokenizer}, here {hashes.tokenizer}) and without texts; "
            "train all agents with this version of rewardlab"
        )
    theirs, ours = (stored.messages, hashes.messages) if foreign else (stored.prompts, hashes.prompts)
    if theirs != ours:
        raise DataError(
            f"{path}: its completions belong to other prompts ({theirs}, here {ours}); give all agents "
            "the same data, seed, chat template and batch settings, and use a new folder for each run"
        )
    if len(lengths) != number:
        raise DataError(
            f"{path}: {len(lengths)} completions, expected {number}; give all agents the same number of completions"
        )
    sizes = lengths.tolist()
    ids, values = ([part.tolist() for part in tensor.split(sizes)] for tensor in (tokens, logprobs))
    pairs = texts and [(text, ended) for text, ended in texts]
    return retokenized(pairs, values, tokenizer) if foreign and pairs else AgentCompletions(ids, values, pairs)


def retokenized(
    texts: Sequence[tuple[str, bool]], logprobs: Sequence[Sequence[float]], tokenizer: Any
) -> AgentCompletions:
    """Encode completions of an agent with another tokenizer; each token gets an equal share of the log-probability.

    Log-probabilities of single tokens are therefore not exact. Their sum over a completion is, and HACPO's ratio uses
    only this sum. A completion is never empty: an empty text becomes an end-of-text token.
    """
    end, ids = [tokenizer.eos_token_id], []
    for text, ended in texts:
        tokens = tokenizer(text, add_special_tokens=False).input_ids
        ids.append([*tokens, *end] if ended or not tokens else tokens)
    shares = [[sum(values) / len(row)] * len(row) for row, values in zip(ids, logprobs, strict=True)]
    return AgentCompletions(ids, shares, [*texts])
