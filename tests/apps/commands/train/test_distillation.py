"""`rewardlab train --teacher`: a reward model that learns from another one."""

import json
from pathlib import Path

import numpy as np
import pytest
from rewardlab.apps.cli import main
from rewardlab.benchmarks import garden
from rewardlab.rm.data.pairs import pair_row
from rewardlab.rm.kinds.linear.model import new_linear
from rewardlab.rm.kinds.scalar.distillation import TimedGaps, compare
from rewardlab.rm.load import load_reward_model

from tests.apps.conftest import write

SMALL = ["--small_hidden", "32", "--small_vocabulary", "300", "--use_cpu", "True", "--disable_tqdm", "True"]
SMALL += ["--max_steps", "20", "--learning_rate", "3e-3"]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Pairs without a label, held-out pairs, and a teacher."""
    folder = tmp_path_factory.mktemp("distil")
    unlabelled = [dict(pair_row(pair)) | {"wins": {}} for pair in garden.pairs(120, 0)]
    write(folder / "pairs.jsonl", unlabelled)
    write(folder / "held.jsonl", [dict(pair_row(pair)) for pair in garden.pairs(60, 1)])
    new_linear().fit(garden.pairs(400, 2)).save(folder / "teacher")
    return folder


def distil(world, output, *words: str) -> int:
    data = ["--data", str(world / "pairs.jsonl"), "--eval_data", str(world / "held.jsonl")]
    return main(["train", *data, "--teacher", str(world / "teacher"), *SMALL, "--output", str(output), *words])


@pytest.mark.parametrize("loss", [(), ("--loss", "centred_mse")])
def test_a_student_learns_from_unlabelled_pairs_and_is_compared_with_its_teacher(world, tmp_path, capsys, loss):
    assert distil(world, tmp_path / "student", *loss) == 0
    facts = json.loads(capsys.readouterr().out)["distilled"]
    assert json.loads((tmp_path / "student" / "manifest.json").read_text())["distilled"] == facts
    teacher, student = (load_reward_model(str(folder)) for folder in (world / "teacher", tmp_path / "student"))
    pairs = garden.pairs(60, 1)
    gaps = [model.rate([x for pair in pairs for x in pair.examples])[:, 0].reshape(-1, 2) @ [1, -1]
            for model in (student, teacher)]  # fmt: skip
    assert facts["contract"] == teacher.contract.hash() and (facts["pairs"], facts["held_out"]) == (60, True)
    assert facts["agreement"] == pytest.approx(np.mean(np.sign(gaps[0]) == np.sign(gaps[1])))
    assert facts["agreement"] > 0.6, "better than chance"
    wins = np.sign(np.array([pair.chance() for pair in pairs]) - 0.5)
    for name, gap in zip(("student", "teacher"), gaps, strict=True):
        assert facts["accuracy"][name] == pytest.approx(np.mean(gap * wins > 0))
        assert facts["cpu_seconds_per_1000_pairs"][name] > 0


def test_agreement_counts_the_order_alone_and_accuracy_the_pairs_with_a_preference():
    student = TimedGaps(np.array([1.0, -1.0, 2.0, 0.1]), 1.0, "s")
    teacher = TimedGaps(np.array([9.0, 1.0, 1.0, -3.0]), 4.0, "t")
    facts = compare(student, teacher, np.array([1.0, 0.0, 0.5, np.nan]))
    assert facts["agreement"] == 0.5 and facts["accuracy"] == {"student": 1.0, "teacher": 0.5}
    assert facts["cpu_seconds_per_1000_pairs"] == {"student": 250.0, "teacher": 1000.0}
    assert compare(student, teacher, np.full(4, 0.5))["accuracy"] == {"student": None, "teacher": None}


def test_settings_that_contradict_a_teacher_are_refused(world, tmp_path, capsys):
    for words, says in (
        (("--objectives", "helpful", "harmless"), "--teacher has one reward"),
        (("--loss", f"weak_margin(weak={world / 'teacher'})"), "does not learn from --teacher"),
    ):
        assert distil(world, tmp_path / "new", *words) == 2
        assert says in capsys.readouterr().err
    linear = ["--kind", "linear", "--data", str(world / "held.jsonl"), "--output", str(tmp_path / "new")]
    assert main(["train", *linear, "--teacher", str(world / "teacher")]) == 2
    assert "--teacher belongs to --kind" in capsys.readouterr().err
