"""Outlines of trainers' arguments agree with the classes, and refusals and help pages need nothing else."""

import subprocess
import sys

import pytest
from rewardlab.apps.cli import VERBS, parse
from rewardlab.apps.settings import trainer_arguments
from rewardlab.apps.settings.help import help_page

WRITE = "python -m rewardlab.apps.settings.trainer_arguments writes it anew"
WITH_TRAINER = [name for name, verb in VERBS.items() if verb.outlines != verb.settings]


def test_the_table_is_that_of_the_installed_trainers():
    if trainer_arguments.stored_table()["versions"] != trainer_arguments._versions():
        pytest.skip("the table is of other versions and not used")
    assert trainer_arguments.stored_table() == trainer_arguments.installed_table(), WRITE


def test_an_outline_has_the_help_page_of_its_class():
    assert {"train", "rl", "retriever", "judge train", "sft", "dpo"} == {*WITH_TRAINER}
    for name in WITH_TRAINER:
        pages = [help_page("", "", "", classes) for classes in (VERBS[name].outlines, VERBS[name].settings)]
        assert pages[0] == pages[1], name


def test_a_table_of_other_versions_is_not_used(monkeypatch):
    assert trainer_arguments.outline("RewardArguments") is not None
    monkeypatch.setattr(trainer_arguments, "_versions", lambda: {"transformers": "5.999.0", "trl": "1.16.0"})
    assert trainer_arguments.outline("RewardArguments") is None


def test_flags_and_switches_of_a_trainer_are_read_alike():
    for words, value in ((["--disable_tqdm"], True), (["--disable_tqdm", "False"], False), ([], None)):
        assert parse("train", VERBS["train"], words, outlined=True)[-1].disable_tqdm is value
    for outlined in (True, False):
        arguments = parse("train", VERBS["train"], ["--disable_tqdm", "--bf16", "False"], outlined=outlined)[-1]
        assert arguments.disable_tqdm is True and arguments.bf16 is False


def test_help_and_refusals_import_no_trainer():
    code = """
import sys
from rewardlab.apps.cli import main
for words in ("--help", "--modle x", "", "--data nowhere.jsonl", "--optim x", "--learning_rate -1", "--data a=b"):
    assert main(["train", *words.split()]) == (0 if words == "--help" else 2), words
assert main(["rl", "--help"]) == main(["retriever", "--help"]) == 0
assert not {"torch", "transformers"} & {*sys.modules}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
