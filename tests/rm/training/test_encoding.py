from dataclasses import replace

import pytest
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.rm.backbones.loading import small_tokenizer
from rewardlab.rm.backbones.tokenization import Encoder, describe_tokenizer
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import DataError
from rewardlab.rm.kinds.scalar.training import encode_pairs
from rewardlab.rm.types import PreferencePair, user_turn

WORDS = small_tokenizer(["roba kano misu suli teke"] * 40, 300)
PAIRS = [PreferencePair(str(n), user_turn("roba"), f"{'kano ' * 9}misu{n}", f"suli{n}") for n in range(3)]


def encoder(limit: int, words=WORDS) -> Encoder:
    described = describe_tokenizer(words)
    return Encoder(words, ScoringContract(kind="scalar", truncation="left", max_length=limit, **described))


def test_pairs_that_are_all_left_out_name_the_cause_and_its_remedy():
    for objective, limit, on_long, sentence in [
        ("helpful", 6, "truncate", r": 0 over 6 .* 3 without a label .*; their .* overall: .*--data helpful=FILE"),
        ("overall", 6, "skip", r": 3 over 6 tokens, .* 0 without .*; raise --max_length, or set --on_long truncate$"),
        ("overall", 1, "truncate", r": 0 over 1 tokens, 3 identical after truncation, .*; raise --max_length$"),
    ]:
        with pytest.raises(DataError, match=f"none of 3 pairs is left to train on{sentence}"):
            encode_pairs(encoder(limit), PAIRS, objective, on_long)


def test_pairs_that_differ_in_unknown_words_alone_need_another_tokenizer():
    pair = PreferencePair("0", user_turn("bees"), "zyxw", "qvut")
    with pytest.raises(DataError, match="1 identical .* no tokens for the differences; start from another --model$"):
        encode_pairs(encoder(64, tokenizer()), [pair], "overall")


def test_pairs_without_an_overall_label_are_not_told_to_name_the_objective_of_their_file():
    pairs = [replace(pair, wins={"helpfulness": 1.0}) for pair in PAIRS]
    with pytest.raises(DataError, match="their labels are helpfulness: name one of them with --objective$"):
        encode_pairs(encoder(6), pairs, "overall")
