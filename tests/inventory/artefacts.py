"""Small artefacts of every kind, written by the verbs as a user runs them, and the summary that each verb prints.

`python -m tests.inventory.artefacts --output FILE.zip` makes them in a minute of CPU time and packs what tests
load, with `FOLDER` in place of the folder in which they were made.
"""

import argparse
import io
import json
import os
import sys
import tempfile
import zipfile
from contextlib import chdir, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rewardlab.apps.cli import main
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.judges.backends.chat import Ask
from rewardlab.judges.retrieval.encoder import load_encoder
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.data.pairs import load_examples, pair_row
from rewardlab.rm.kinds.implicit.model import load_implicit
from rewardlab.rm.kinds.r2m.model import R2MRewardModel
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import content_hash
from rewardlab.tests.stand_ins.chat_server import ChatServer
from rewardlab.tests.stand_ins.simulated_judge import Biases, SimulatedJudge
from rewardlab.tests.stand_ins.simulated_teacher import SimulatedTeacher
from rewardlab.tests.stand_ins.verifiable_prompts import items
from transformers import AutoModelForCausalLM

from tests.apps.judging import longer, write
from tests.inventory.formats import files_of

WORDS = (
    "which", "plant", "likes", "rain", "fern", "moss", "oak", "newt", "yes", "no", "sun", "and", "helpful",
    "harmless",
)  # fmt: skip
PLACEHOLDER = b"FOLDER"
STEPS = ("--max_steps", 2, "--per_device_train_batch_size", 4, "--learning_rate", 1e-2, "--disable_tqdm", "True")
TRAINING = (*STEPS, "--use_cpu", "True", "--golden", 4, "--max_length", 32)
GUIDE = (
    "--kind",
    "autoregressive",
    "--model",
    "base",
    "--data",
    "pairs.jsonl",
    "--lora_r",
    2,
    "--monitor_steps",
    2,
    *TRAINING,
)
BOTH = ("--objectives", "helpful", "harmless")
LABELLED = ("--model", "base", "--data", "pairs.jsonl", *TRAINING)

SCRATCH = ("--small_hidden", 8, "--small_layers", 1, "--small_vocabulary", 260)

MODELS: dict[str, tuple[Any, ...]] = {
    "linear": ("--kind", "linear", "--data", "pairs.jsonl", "--golden", 4),
    "linear_2": ("--kind", "linear", "--data", "pairs.jsonl", "--golden", 4, "--inverse_regularization", 0.1),
    "embedding": ("--kind", "embedding", "--model", "base", "--data", "pairs.jsonl", "--golden", 4),
    "scalar": LABELLED, "scratch": ("--data", "pairs.jsonl", *SCRATCH, *TRAINING, "--max_length", 96),
    "lora": (*LABELLED, "--lora", "--lora_r", 2), "multi_objective": (*LABELLED, *BOTH, "--weights", "learned"),
    "multi_head": ("--kind", "multi_head", *LABELLED, "--heads", 2, "--head_steps", 3),
    "ensemble": ("--kind", "ensemble", "--members", "linear", "linear_2", "--combine", "mean_std(weight=0.5)"),
    "boosted": ("--kind", "boosted", "--members", "scalar", "linear", "--data", "pairs.jsonl", "--golden", 4),
    "process": ("--kind", "process", "--model", "base", "--data", "solutions.jsonl", *TRAINING),
    "latent": ("--kind", "latent", *LABELLED, "--latent_steps", 1, "--latent_depth", "head", "--latent_stage_1", 1),
    "genarm": (*GUIDE, "--adapter", "genarm"), "parm": (*GUIDE, "--adapter", "parm", *BOTH, "--shared_rank", 2),
    "uniarm": (*GUIDE, "--adapter", "uniarm", *BOTH), "guide": (*GUIDE, "--adapter", "none"),
}  # fmt: skip
"""Reward models of `train`, in the order in which they read each other."""


class Maker:
    """Runs verbs in the current folder, and records what they print."""

    def __init__(self):
        self.summaries: dict[str, Any] = {}

    def run(self, name: str, *words: Any) -> None:
        """Run a verb, which has to succeed, and record its summary under a name."""
        printed, arguments = io.StringIO(), [*map(str, words)]
        with redirect_stdout(printed), patch.object(sys, "argv", ["rewardlab", *arguments]):
            code = main(arguments)
        if code:
            raise RuntimeError(f"{name}: exit code {code}")
        self.summaries[name] = json.loads(printed.getvalue().strip().split("\n")[-1])


def make(folder: Path) -> None:
    """Write all artefacts to a folder, numbers to expect of them, and the verbs' summaries."""
    folder.mkdir(parents=True)
    with chdir(folder), patch.dict(os.environ, {"HOME": str(folder)}):  # the cache of embeddings
        maker = Maker()
        write_data()
        write_base(Path("base"))
        for name, words in MODELS.items():
            maker.run(f"train {name}", "train", *words, "--output", name)
        write_from_objects()
        maker.run("merge", "merge", "lora", "--output", "merged")
        for name in (*MODELS, "merged", "implicit"):
            maker.run("score", "score", "--model", name, "--data", "conversations.jsonl", "--output", f"{name}.jsonl")
        evaluate(maker)
        judge(maker)
        write_rubrics(maker)
        use_models(maker)
        numbers = {"r2m": r2m_rewards(load_reward_model("r2m")), "retriever": vectors(load_encoder("retriever"))}
        Path("expected.json").write_text(json.dumps(numbers) + "\n")
        Path("summaries.json").write_text(json.dumps(maker.summaries, indent=1) + "\n")


# ---- data and models ----


def write_data() -> None:
    """Write pairs with labels of two objectives and rationales, steps, conversations and prompts."""
    pairs, solutions = [], []
    for index in range(12):
        good, bad = f"{WORDS[4 + index % 3]} and {WORDS[index % 5]}", f"newt {WORDS[index % 4]}"
        row = {"id": f"p{index}", "prompt": f"which plant likes {WORDS[index % 8]}", "chosen": good, "rejected": bad}
        row |= {"wins": {"overall": 1.0, "helpful": 1.0, "harmless": index % 2 / 1.0}, "subset": "ab"[index % 2]}
        pairs.append(row | {"rationale_chosen": "fern likes rain", "rationale_rejected": "newt no plant"})
        solutions.append({"prompt": row["prompt"], "completions": [good, bad], "labels": [True, bool(index % 2)]})
    write(Path("pairs.jsonl"), pairs)
    write(Path("solutions.jsonl"), solutions)
    rows = [{"id": row["id"], "prompt": row["prompt"], "completion": row["chosen"]} for row in pairs[:4]]
    write(Path("conversations.jsonl"), rows)
    write(Path("prompts.jsonl"), [{"prompt": row["prompt"]} for row in rows])
    checks = [pair_row(item.pair(0, 0)) for item in items(4, 0)]
    write(Path("checks.jsonl"), checks)
    write(Path("doubled.jsonl"), [*pairs, pairs[0] | {"id": "again"}])


def write_base(folder: Path, seed: int = 0) -> None:
    """Write an untrained language model of width 8 with one layer."""
    words = tokenizer(WORDS)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(small_config(words, hidden=8, layers=1, heads=2, positions=64))
    model.save_pretrained(folder)
    words.save_pretrained(folder)


def write_from_objects() -> None:
    """Write the kinds that no verb writes: an implicit reward, which names its models in this folder, and R2M."""
    write_base(Path("policy"), seed=1)
    model = load_implicit("policy", reference="base", beta=0.5, max_length=32)
    model.settings |= {"policy": "policy", "reference": "base"}
    model.contract = replace(model.contract, backbone=content_hash(["policy", "base", 0.5]))
    model.save(Path("implicit"))
    with_states: Any = R2MRewardModel.on(load_reward_model("scalar"), policy_width=3, width=2, seed=1)
    with_states.omega = 0.5
    with_states.save(Path("r2m"))


def r2m_rewards(model: Any) -> list[float]:
    """Return R2M's rewards of the conversations, with hidden states of fixed numbers."""
    examples = [example for _, example in load_examples("conversations.jsonl")[0]]
    states = [torch.linspace(-1, 1, 3 * (index + 2)).view(-1, 3) for index in range(len(examples))]
    return [float(reward) for reward in model.rate(examples, states)[:, 0]]


def vectors(encoder: Any) -> list[Any]:
    """Return a retriever's vectors of two texts."""
    return encoder.embed(["which plant likes rain", "fern and moss"]).tolist()


# ---- runs ----


def evaluate(maker: Maker) -> None:
    """Write evaluations, a comparison and a leaderboard of them, and the reports about a model and about data."""
    for number, name in enumerate(("linear", "scalar"), 1):
        words = ("--model", name, "--data", "pairs.jsonl", "--bootstrap_samples", 20, "--output", f"runs/eval_{number}")
        maker.run("eval", "eval", *words)
    maker.run("verify", "verify", "runs/eval_1")
    maker.run("compare", "compare", "runs/eval_1", "runs/eval_2", "--output", "comparison")
    maker.run("board", "board", "runs", "--output", "leaderboard")
    maker.run("card", "card", "linear", "--runs", "runs/eval_1", "--output", "card.md")
    maker.run("parity", "parity", "scalar", "--against", "checkpoint", "--fresh", "False", "--output", "parity.md")
    maker.run("lint", "lint", "doubled.jsonl", "--output", "lint", "--fix", "clean.jsonl")
    words = ("--model", "7b", "--job", "train", "--gpus", 8, "--strategy", "fsdp", "--dtype", "mixed")
    maker.run("plan", "plan", *words, "--output", "plan")


def judge(maker: Maker) -> None:
    """Write judge runs: through a server, by a reward model, an audit, and a routing rule fitted to two of them."""
    with ChatServer(answer=longer) as server:
        model = ("--endpoint", server.url, "--model", "m", "--key_variable", "", "--bootstrap_samples", 20)
        words = ("judge", "--data", "pairs.jsonl", *model)
        maker.run("judge", *words, "--kind", "pairwise", "pointwise", "--output", "runs/judge_1")
        maker.run("judge audit", *words, "--audit", "--output", "runs/audit")
        traces = ("--teacher", f"endpoint={server.url}, model=m, key_variable=''", "--base", "base")
        short = ("--sft_batch", 4, "--sft_accumulate", 1, "--sft_epochs", 1, "--num_generations", 4, "--stage", "sft")
        maker.run(
            "judge train",
            "judge",
            "train",
            "--data",
            "pairs.jsonl",
            *traces,
            *short,
            *STEPS,
            "--output",
            "trained_judge",
        )
    words = ("--kind", "reward_model(model=linear)", "--bootstrap_samples", 20, "--output", "runs/judge_2")
    maker.run("judge by model", "judge", "--data", "pairs.jsonl", *words)


def write_rubrics(maker: Maker) -> None:
    """Write rubrics that a simulated teacher builds and a simulated judge checks."""
    people = {"teacher": SimulatedTeacher(seed=1), "judge": SimulatedJudge(Biases(failure=0.0), seed=2)}

    def reply(asked: Any) -> str:
        return people[asked["model"]].ask([Ask(asked["messages"])])[0].text

    with ChatServer(answer=reply) as server:
        model = ("--endpoint", server.url, "--model", "teacher", "--key_variable", "", "--judge", "judge")
        for action in ("build", "apply"):
            words = ("--data", "checks.jsonl", *model, "--output", f"rubrics_{action}")
            maker.run(f"rubrics {action}", "rubrics", action, *words)


def use_models(maker: Maker) -> None:
    """Write completions, a trained policy and a retriever's encoder."""
    preference = ("--preference", "helpful=0.5,harmless=0.5", "--max_new_tokens", 4)
    maker.run(
        "decode", "decode", "--arm", "uniarm", *preference, "--data", "prompts.jsonl", "--output", "decoded.jsonl"
    )
    words = ("--model", "base", "--data", "prompts.jsonl", "--reward", "rm=linear", "--kl", 0.1, "--critic", "True")
    words += ("--advantage", "gae", "--max_steps", 1, "--num_generations", 4, "--max_completion_length", 4)
    words += ("--rollout_steps", 1, "--per_device_train_batch_size", 8, "--use_cpu", "True", "--disable_tqdm", "True")
    maker.run("rl", "rl", *words, "--output", "trained_policy")
    words = ("--group_by", "subset", *SCRATCH, "--facets", 2, "--width", 4, "--max_length", 16, *STEPS)
    maker.run("retriever", "retriever", "pairs.jsonl", *words, "--use_cpu", "True", "--output", "retriever")


# ---- archive ----


def pack(folder: Path, archive: Path) -> None:
    """Pack a folder of artefacts without checkpoints; figures without their contents."""
    with zipfile.ZipFile(archive, "w", compresslevel=9) as packed:
        for path in files_of(folder):
            content = b"" if path.suffix == ".png" else path.read_bytes().replace(bytes(folder), PLACEHOLDER)
            packed.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), content, zipfile.ZIP_DEFLATED)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack artefacts to a folder, under whose path they refer to each other."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
        for path in folder.rglob("*"):
            if path.is_file() and PLACEHOLDER in (content := path.read_bytes()):
                path.write_bytes(content.replace(PLACEHOLDER, bytes(folder)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args().output.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch).resolve() / "made"
        make(made)
        pack(made, output)
