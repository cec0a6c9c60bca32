"""Own rewards and formulas as plain functions of a file, in `rewardlab rl`."""

import json
import sys
from pathlib import Path

import pytest
from rewardlab.apps.assembly.policy_training import run as running

from tests.apps.conftest import rollouts_of, steps_of, write

OWN = '''
"""What a user writes: no import of rewardlab."""

def matches(prompts, completions, reference, **columns):
    """1 for every word of the reference; None where the row has no reference."""
    pairs = zip(completions, reference)
    return [None if ref is None else float(len(set(c.split()) & set(ref.split()))) for c, ref in pairs]

def as_messages(prompts, completions, **columns):
    """TRL's form for prompts that are lists of messages."""
    return [float(len(c[0]["content"])) + 1000 * (p[-1]["role"] == "user") for p, c in zip(prompts, completions)]

async def brevity(completions, longest=24):
    return [-len(c) / longest for c in completions]

def no_completions(prompts, reference):
    return [0.0 for _ in prompts]

def fails(completions, **columns):
    return [0.0]

def centred(rewards, rollout, scale=1.0):
    known = ~rewards.isnan()
    return ((rewards - rewards[known].mean()) * scale).masked_fill(~known, 0.0)

def flat(rewards, rollout):
    return rewards.sum()

def unclipped(logprobs, old_logprobs, advantages):
    return -(logprobs - old_logprobs).exp() * advantages

def of_completions(logprobs, old_logprobs, advantages):
    return (-(logprobs - old_logprobs).exp() * advantages).mean()

def constant(logprobs, old_logprobs, advantages):
    return -advantages

def halved(rewards, rollout):
    return rewards.replaced("matches", rewards["matches"] / 2)

def positive(advantages, rollout):
    return advantages.clamp(min=0)
'''
ROWS = [{"prompt": f"How do I water plant {index}?", "reference": "water the roots"} for index in range(8)]


@pytest.fixture
def working_folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "mine.py").write_text(OWN)
    monkeypatch.chdir(folder)
    others = {path for path in sys.path if (Path(path) / "mine.py").exists()}  # working folders of earlier tests
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in others])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return folder


def test_a_reward_an_advantage_a_loss_and_transforms_are_plain_functions(rl, working_folder):
    data = write(working_folder / "rows.jsonl", [*ROWS[:-1], {"prompt": "No reference here?"}])
    code, facts, _, folder = rl(
        *("--reward", "mine.py:matches", "--watch", "short=mine.py:brevity(longest=12)"),
        *("--advantage", "mine.py:centred(scale=0.5)", "--loss", "mine.py:unclipped"),
        *("--reward_transform", "mine.py:halved", "--advantage_transform", "mine.py:positive"),
        *("--max_steps", 2, "--rollout_steps", 1, "--on_fault", "skip"),
        data=data,
    )
    assert code == 0 and facts["steps"] == 2
    rows = rollouts_of(folder)
    for row in rows:
        known = "No reference" not in row["prompt"]
        shared = {*row["completion"].split()} & {"water", "the", "roots"}
        assert row["reward/sources/matches"] == (float(len(shared)) if known else None)
        assert row["reward/sources/short"] == pytest.approx(-len(row["completion"]) / 12)
        assert row["reward/halved/matches"] == (len(shared) / 2 if known else None)
    assert len(steps_of(folder)) == 2


def test_rows_of_messages_reach_the_function_as_messages(rl, working_folder):
    rows = [{"prompt": [{"role": "user", "content": row["prompt"]}]} for row in ROWS]
    data = write(working_folder / "rows.jsonl", rows)
    code, _, _, folder = rl("--reward", "mine:as_messages", "--max_steps", 1, "--rollout_steps", 1, data=data)
    assert code == 0
    assert all(row["reward/sources/as_messages"] == len(row["completion"]) + 1000 for row in rollouts_of(folder))


def test_a_wrong_function_is_refused_before_a_model_is_loaded(rl, working_folder, monkeypatch):
    for flags, message in (
        (["--reward", "mine.py:absent"], "no 'absent' in mine.py; name one of its functions"),
        (["--reward", "mine:matchs"], "no 'matchs' in mine; did you mean 'matches'?"),
        (["--reward", "nowhere.py:f"], "no file"),
        (["--reward", "mine.py:no_completions"], "the signature (prompts, completions, **columns)"),
        (["--reward", "mine.py:fails"], "returns 1 values for 2 completions"),
        (["--reward", "mine.py:as_messages"], "fails on trial completions"),
        (["--advantage", "mine.py:flat"], "the advantage estimator 'mine.py:flat' returns the shape []"),
        (["--advantage", "mine.py:matches"], "a plain function has the signature (rewards, rollout)"),
        (["--loss", "mine.py:of_completions"], "a token loss must return one value for each of"),
        (["--loss", "mine.py:constant"], "has no gradient"),
        (["--advantage", "mine.py:centred(size=2)"], "no argument 'size'; the function has scale"),
    ):
        monkeypatch.setattr(running, "open_language_model", lambda *_: pytest.fail("the policy was loaded"))
        data = write(working_folder / "rows.jsonl", ROWS)
        given = flags if "--reward" in flags else ["--reward", "mine.py:matches", *flags]
        code, _, error, _ = rl(*given, "--max_steps", 1, data=data)
        assert code == 2 and message in error, flags


def test_a_column_that_no_row_has_is_named(rl, working_folder):
    data = write(working_folder / "rows.jsonl", [{"prompt": row["prompt"], "answer": "x"} for row in ROWS])
    code, _, error, _ = rl("--reward", "mine.py:matches", "--max_steps", 1, data=data)
    assert code == 2 and "reads the column 'reference', which no row of the data has (columns: answer)" in error


def test_rows_with_one_prompt_keep_their_own_reference(rl, working_folder):
    rows = [{"prompt": "Which word?", "reference": word} for word in ("alpha beta", "gamma") * 4]
    (working_folder / "refs.py").write_text(
        "def length(completions, reference):\n    return [float(len(text)) for text in reference]\n"
    )
    data = write(working_folder / "rows.jsonl", rows)
    code, _, _, folder = rl("--reward", "refs.py:length", "--max_steps", 1, "--rollout_steps", 1, data=data)
    assert code == 5, "all completions of a prompt have the same reward"
    assert {row["reward/sources/length"] for row in rollouts_of(folder)} == {10.0, 5.0}
    assert json.loads((folder / "manifest.json").read_text())["prompts"]["kept"] == 8
