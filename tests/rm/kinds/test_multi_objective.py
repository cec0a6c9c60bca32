import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.contract.golden_scores import write_golden
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.data.scored_rows import Judged, ScoredCompletion, load_judged
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.multi_objective import training as objectives
from rewardlab.rm.kinds.multi_objective.model import checked_weights, learned_weights, with_overall
from rewardlab.rm.kinds.scalar import ScalarSettings
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.losses.bradley_terry import bradley_terry
from rewardlab.rm.losses.length_controlled import length_controlled
from rewardlab.rm.losses.scaled_bradley_terry import scaled_bradley_terry
from rewardlab.rm.parity.parity import own_variants, parity
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from rewardlab.rm.types import OVERALL, Example, PreferencePair, user_turn
from rewardlab.tests.stand_ins.small_training import Fit, fit
from transformers import AutoModelForSequenceClassification, EvalPrediction

from tests.rm.data.test_pairs import write

NAMES = ("helpful", "harmless")
NAN = math.nan
WORDS = tokenizer()
TAUGHT = garden.pairs(400, 0)
SAID = [example for pair in garden.pairs(40, 1, split="test") for example in pair.examples]


def small(objectives=NAMES, seed=0):
    return scalar_from_config(
        small_config(WORDS, hidden=32, layers=1), WORDS, max_length=64, objectives=objectives, seed=seed
    )


def task_of(loss=bradley_terry, names=NAMES, **options):
    return objectives.ObjectivesTask({name: loss() for name in names}, **options)


def test_rated_answers_are_read_as_helpsteer_has_them_and_from_pairs(tmp_path):
    rows = [
        {"prompt": "q", "response": "a", "helpfulness": 3, "verbosity": 1.5, "other": "x"},
        {"prompt": "q", "response": "b", "helpfulness": 0, "verbosity": None},
        {"prompt": "q", "completion": "c", "scores": {"verbosity": 4}},
    ]
    data, report = load_judged(write(tmp_path / "a.jsonl", rows), ["helpfulness", "verbosity"])
    scores = [{"helpfulness": 3.0, "verbosity": 1.5}, {"helpfulness": 0.0}, {"verbosity": 4.0}]
    assert [one.scores for one in data.completions] == scores
    assert data.completions[0].example == Example(user_turn("q"), "a") and not data.pairs and report.read == 3
    text = 'prompt,response,scores,verbosity\nq,d,"{""verbosity"": 2}",\nq,e,,3\n'
    (tmp_path / "b.csv").write_text(text)
    data, _ = load_judged(str(tmp_path / "b.csv"), ["verbosity"])
    assert [one.scores for one in data.completions] == [{"verbosity": 2.0}, {"verbosity": 3.0}]
    row = {"prompt": "q", "chosen": "a", "rejected": "b", "wins": {"helpful": 1.0}}
    row |= {"scores_chosen": {"harmless": 2.0}, "scores_rejected": {"harmless": 1.0}}
    data, _ = load_judged(write(tmp_path / "a.jsonl", [row, {"prompt": "q", "chosen": "c", "rejected": "d"}]), NAMES)
    assert [pair.wins for pair in data.pairs] == [{"helpful": 1.0}, {OVERALL: 1.0}]
    scored = [(one.example.completion, one.scores) for one in data.completions]
    assert scored == [("a", {"harmless": 2.0}), ("b", {"harmless": 1.0})]


def test_rows_that_rate_nothing_and_weights_that_make_no_sense_are_refused(tmp_path):
    for row, sentence in [
        ({"helpful": "three"}, "the score 'helpful' is not a finite number: 'three'"),
        ({"helpful": True}, "the score 'helpful' is not a finite number: True"),
        ({"scores": 3}, "scores must be {objective: number}, got 3"),
        ({"kind": 3}, "no column 'helpful': the row has completion, kind, prompt"),
        ({"scores": {"kind": 3}, "helpful": 3}, "no score for helpful, harmless"),
    ]:
        path = write(tmp_path / "a.jsonl", [{"prompt": "q", "completion": "a"} | row])
        with pytest.raises(DataError, match=f"a.jsonl:1: {sentence}"):
            load_judged(path, NAMES)
    for weights, sentence in [
        ({"helpful": 1.0}, "lack harmless; add harmless=0"),
        ({"helpful": 1.0, "harmles": 1.0}, "unknown objective 'harmles' in the weights; did you mean 'harmless'"),
        ({"helpful": NAN, "harmless": 1.0}, "finite numbers and not all 0"),
        ({"helpful": 0.0, "harmless": 0.0}, "finite numbers and not all 0"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            checked_weights(weights, NAMES)


def test_what_is_not_labelled_is_nan_and_counted_and_answers_beyond_the_limit_are_cut_or_refused():
    model = small()
    made = [replace(TAUGHT[0], wins={"helpful": 1.0}), replace(TAUGHT[1], wins={"helpful": 0.0, "harmless": 0.5})]
    made.append(replace(TAUGHT[2], wins={OVERALL: 1.0}))
    encoding = objectives.encode_objectives(model.encoder, made, NAMES)
    answers = [ScoredCompletion("s", TAUGHT[3].examples[0], {"harmless": 3.0})]
    rows = encoding.rows + objectives.encode_scored(model.encoder, answers, NAMES).rows
    assert encoding.unlabelled == 1 and [row.wins for row in rows[:1]] == [(1.0, pytest.approx(NAN, nan_ok=True))]
    counts = {name: [*row.values()] for name, row in objectives.label_counts(rows, NAMES).items()}
    assert counts == {"helpful": [2, 0, 1], "harmless": [1, 1, 1]}, "pairs, scores, unlabelled"
    long = ScoredCompletion("s", Example(user_turn("q"), "honey " * 99), {"helpful": 1.0})
    cut = objectives.encode_scored(model.encoder, [long], NAMES)
    assert len(cut.rows[0].chosen) == 64 and cut.over_length == 1 and cut.longest > 99
    assert objectives.encode_scored(model.encoder, [long], NAMES, "skip").rows == []
    with pytest.raises(DataError, match="completion 's' has 10. tokens and the limit is 64"):
        objectives.encode_scored(model.encoder, [long], NAMES, "refuse")


def test_pairs_without_a_label_are_counted_beside_rated_completions():
    lines: list[str] = []
    settings = ScalarSettings(objectives=[*NAMES])
    training = objectives.ObjectivesTraining(settings, RewardArguments(use_cpu=True, bf16=False), report=lines.append)
    rated = [ScoredCompletion("s", TAUGHT[3].examples[0], {"harmless": 3.0})]
    encoding = training._encode(small(), Judged([replace(TAUGHT[0], wins={OVERALL: 1.0})], rated), "data")
    assert (encoding.pairs, encoding.unlabelled, len(encoding.rows)) == (2, 1, 1)
    assert lines == ["data: left out 0 pairs identical after truncation, 1 unlabelled"]


ROWS = [
    objectives.ObjectiveRow([7, 8, 9], [9, 8], (1.0, NAN), (2.0, NAN), (NAN, NAN)),
    objectives.ObjectiveRow([9, 7], None, (NAN, NAN), (NAN, NAN), (0.5, NAN)),
    objectives.ObjectiveRow([8, 8, 7, 9], [7, 9, 8], (0.25, 0.0), (-3.0, 1.0), (NAN, NAN)),
]


def rewards_of(model, rows) -> np.ndarray:

    def alone(ids):
        return model.score(torch.tensor([ids]), torch.ones(1, len(ids)))[0].double().detach().numpy()

    return np.array([[alone(row.chosen), alone(row.rejected or row.chosen)] for row in rows])


def l(gap):  # noqa: E743 (the loss of a gap, as in the formula)
    return np.log1p(np.exp(-gap))


def test_a_batch_by_hand_in_which_every_label_weighs_the_same():
    batch = task_of().collate(ROWS)
    assert batch["second"].tolist() == [3, -1, 4] and batch["tokens"].shape == (5, 4)
    assert batch["tokens"][3:].tolist() == [[9, 8, 0, 0], [7, 9, 8, 0]]
    assert batch["stated"].shape == (3, 2, 2)
    model, task = small(), task_of(regression_weight=0.5)
    means, outputs = task.loss(model.model, task.collate(ROWS))
    loss = means.sum()
    r = rewards_of(model, ROWS)
    gaps = r[:, 0] - r[:, 1]
    labelled = [l(gaps[0, 0]), 0.25 * l(gaps[2, 0]) + 0.75 * l(-gaps[2, 0]), l(-gaps[2, 1])]
    expected = np.mean(labelled) + 0.5 * (r[1, 0, 0] - 0.5) ** 2
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert outputs[1, 1].isnan().all() and outputs[0, :2].detach().numpy() == pytest.approx(r[0], abs=1e-6)


def test_a_batch_without_any_pair_or_score_has_a_gradient_and_a_set_without_is_refused():
    model, task = small(), task_of()
    for rows in (ROWS[1:2], ROWS[:1]):
        loss = task.loss(model.model, task.collate(rows))[0].sum()
        loss.backward()
        assert loss.isfinite()
    with pytest.raises(DataError, match="none of 2 rows has a label or a score for 'harmless'"):
        task_of().check(ROWS[:2])


def test_every_objective_has_a_gap_and_a_length_term_of_its_own():
    model, task = small(), task_of(scaled_bradley_terry)
    loss = task.loss(model.model, task.collate([ROWS[0], ROWS[2]]))[0].sum()
    gaps = np.subtract(*rewards_of(model, [ROWS[0], ROWS[2]]).transpose(1, 0, 2))
    labelled = [2 * l(gaps[0, 0]), 3 * (0.25 * l(gaps[1, 0]) + 0.75 * l(-gaps[1, 0])), l(-gaps[1, 1])]
    assert loss.item() == pytest.approx(np.mean(labelled), abs=1e-6)
    task.check([ROWS[0], ROWS[2]])
    with pytest.raises(DataError, match="1 of 2 pairs have no 'gaps' for 'helpful'"):
        task.check([ROWS[0], ROWS[2]._replace(gaps=(NAN, 1.0))])
    model, task = small(), task_of(length_controlled)
    task.check(ROWS)
    assert [one.scale.item() for one in task.modules.values()] == [1.0, 1.0]
    with torch.no_grad():
        task.pair_losses["helpful"].learned.weight.fill_(2.0)
    loss = task.loss(model.model, task.collate(ROWS[:1]))[0].sum()
    gap = np.subtract(*rewards_of(model, ROWS[:1])[0])[0]
    assert loss.item() == pytest.approx(l(gap + 2 * math.tanh(1)), abs=1e-6), "chosen has one token more"


def test_metrics_by_hand():
    rewards = np.array([[[2.0, 0.0], [1.0, 1.0]], [[0.5, 9.0], [NAN, NAN]], [[1.0, 0.0], [0.0, 4.0]]])
    stated = np.array([[row.wins, row.scores] for row in ROWS])
    losses = np.array([[[0.1, NAN]], [[0.25, NAN]], [[0.2, 0.6]]])
    outputs = np.concatenate([rewards, losses], axis=1)
    found = task_of(regression_weight=2.0).metrics(EvalPrediction(predictions=outputs, label_ids=stated))
    # three labels of pairs, (0.1 + 0.2 + 0.6) / 3, and the error of one score, 2 * 0.25
    assert found.pop("loss") == pytest.approx(0.8)
    # helpful: right, and wrong as the label says 0.25; harmless: right; score 0.5 predicted as 0.5
    assert found == {"accuracy_helpful": 0.5, "rmse_helpful": 0.0, "accuracy_harmless": 1.0, "accuracy": 0.75}


def test_the_evaluation_loss_does_not_depend_on_the_batch_size(tmp_path):
    """It is the loss of all rows as one batch: pairs and rated answers, which weigh the same in every batch."""
    model, task = small(), task_of(regression_weight=0.5)
    expected = task.loss(model.model.eval(), task.collate(ROWS))[0].sum().item()
    for rows in (1, 2, 3):
        arguments = RewardArguments(str(tmp_path), per_device_eval_batch_size=rows, use_cpu=True, disable_tqdm=True)
        trainer = RewardTrainer(model, arguments, task, ROWS, ROWS)
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-6)


class Oracle:
    def __init__(self):
        self.contract = ScoringContract(kind="gold", objectives=garden.OBJECTIVES)
        self.rate = garden.gold(garden.OBJECTIVES).rate


def preferring(weights, n=400) -> list[PreferencePair]:
    made = garden.pairs(n, 3)
    gold = Oracle().rate([example for pair in made for example in pair.examples])
    chances = 1 / (1 + np.exp(-(gold[::2] - gold[1::2]) @ np.array(weights)))
    return [replace(pair, wins={OVERALL: float(p)}) for pair, p in zip(made, chances, strict=True)]


def test_learned_weights_are_those_that_made_the_labels():
    found = learned_weights(Oracle(), garden.OBJECTIVES, preferring([1.0, 0.5, -0.3]), C=1e4)
    assert [*found.values()] == pytest.approx([1.0, 0.5, -0.3], abs=1e-3)
    found = learned_weights(Oracle(), garden.OBJECTIVES, preferring([1.0, 0.5, -0.3]), positive=True, C=1e4)
    assert found["engaging"] == 0 and found["helpful"] > 0.8
    alone = learned_weights(Oracle(), garden.OBJECTIVES, preferring([1.0, 0.5, 0.3]), positive=True, C=1e4)
    assert [*alone.values()] == pytest.approx([1.0, 0.5, 0.3], abs=1e-3), "no bound is reached"
    with pytest.raises(DataError, match="none of 1 pairs has an 'overall' label to learn weights from"):
        learned_weights(Oracle(), garden.OBJECTIVES, [replace(TAUGHT[0], wins={"helpful": 1.0})])


@pytest.fixture(scope="module")
def model():
    learner = small((*NAMES, OVERALL))
    rows = objectives.encode_objectives(learner.encoder, TAUGHT, NAMES).rows
    task = task_of()
    task.check(rows)
    fit(learner, task, rows, Fit(steps=80, learning_rate=5e-3, batch=16, seed=0))
    return with_overall(learner, {"harmless": 0.3, "helpful": 0.7})


def test_the_head_learns_every_objective_and_overall_is_the_weighted_sum_in_every_way(model):
    rewards, gold = model.rate(SAID), garden.gold(NAMES).rate(SAID)
    order = [np.corrcoef(rewards[:, k], gold[:, k])[0, 1] for k in range(2)]
    crossed = np.corrcoef(rewards[:, 0], gold[:, 1])[0, 1]
    assert min(order) > 0.4 and crossed < min(order), (order, crossed)
    assert rewards[:, 2] == pytest.approx(0.7 * rewards[:, 0] + 0.3 * rewards[:, 1], abs=1e-5)
    assert model.contract.objectives == (*NAMES, OVERALL) and model.contract.kind == "multi_objective"
    assert all(one.passed for one in parity(model, SAID[:12], own_variants(model)))


def test_weights_are_part_of_the_contract_and_of_the_folder_and_cannot_be_edited(model, tmp_path):
    model.save(tmp_path / "rm")
    write_golden(model, SAID[:6], tmp_path / "rm")
    again = load_reward_model(str(tmp_path / "rm"))
    assert again.weights == {"helpful": 0.7, "harmless": 0.3} and again.contract == model.contract
    assert again.rate(SAID) == pytest.approx(model.rate(SAID), abs=1e-6)
    stranger = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm")
    assert [*stranger.config.id2label.values()] == [*NAMES, OVERALL]
    other = with_overall(small((*NAMES, OVERALL)), {"helpful": 0.6, "harmless": 0.4})
    assert other.contract.hash() != model.contract.hash()
    folder = tmp_path / "edited"
    model.save(folder)
    file = folder / "objective_weights.json"
    kept = file.read_text()
    for text in (kept.replace("0.7", "0.8"), "{}", "[1]"):
        file.write_text(text)
        with pytest.raises(DataError, match=r"objective_weights.json"):
            load_reward_model(str(folder))
    file.write_text(kept)
    edited = load_reward_model(str(folder))
    with torch.no_grad():
        edited.model.score.weight[2] *= 2
    edited.save(folder)
    with pytest.raises(DataError, match="the overall reward is not the sum of the objectives"):
        load_reward_model(str(folder))
