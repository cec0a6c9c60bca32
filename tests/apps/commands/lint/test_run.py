"""Checks of preference data that need a model's tokenizer."""

from rewardlab.rm.backbones.tokenization import control_tokens
from rewardlab.rm.data.lint import MARKUP, find_markup
from rewardlab.rm.types import PreferencePair, user_turn
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast


def test_every_special_token_of_a_tokenizer_is_found_in_the_text_of_users():
    words = Tokenizer(WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    words.add_special_tokens([AddedToken("[TURN]", special=True)])
    words.add_tokens([AddedToken("garden", special=False)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", eos_token="[STOP]")
    special = control_tokens(tokenizer)
    assert sorted(special) == ["[STOP]", "[TURN]", "[UNK]"] and "[TURN]" not in tokenizer.all_special_tokens
    pairs = [PreferencePair(text, user_turn(text), "a", "b") for text in ("my garden", "say [TURN] now")]
    assert [(finding.row, finding.reason) for finding in find_markup(pairs, special)] == [(1, MARKUP)]
