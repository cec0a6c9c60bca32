import numpy as np
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.research.studies import distillation_pretrained as arguments
from rewardlab.research.studies.distillation import ARMS, ENSEMBLE, Distilled, distillation
from rewardlab.research.worlds.guides import Base
from transformers import BertConfig, BertForSequenceClassification


def test_the_ensemble_agrees_with_itself_and_costs_most(tmp_path):
    job = Distilled(Base(0, steps=1, texts=64), taught=16, member_steps=2, unlabelled=16, steps=2, held_out=64)
    run = job.result(tmp_path)
    assert all(run[name].shape == (len(ARMS),) for name in ("agreement", "accuracy", "seconds"))
    assert run["agreement"][ARMS.index(ENSEMBLE)] == 1 and np.all(run["agreement"][1:] < 1)
    assert run["seconds"].argmax() == ARMS.index(ENSEMBLE)


def test_a_dry_run_reports_every_model(tmp_path):
    study = distillation(tmp_path / "cache", rows=16, workers=1, log=lambda _: None)
    assert all(f"| {arm} |" in study.text for arm in ARMS) and "nan" not in study.text


def test_a_dry_run_on_arguments_holds_sides_out_and_reports_every_model(shared_data, tmp_path):
    data, encoder = shared_data.parent, tmp_path / "encoder"
    pool, test = arguments.split_pairs(str(data / arguments.FILE), 0, 600)
    sides = [{pair.prompt[0]["content"] for pair in pairs} for pairs in (pool, test)]
    assert len(sides[1]) == 5 and len(sides[0] | sides[1]) == 23 and len(test) == 600
    tokenizer().save_pretrained(encoder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(tokenizer()), **sizes, num_labels=1, pad_token_id=tokenizer().pad_token_id)
    BertForSequenceClassification(config).save_pretrained(encoder)
    options = {"rows": 4, "workers": 1, "encoder": str(encoder), "log": lambda _: None}
    study = arguments.distillation_pretrained(data, tmp_path / "cache", **options)
    assert all(f"| {arm} |" in study.text for arm in arguments.ARMS) and "CPU-seconds of the training" in study.text
