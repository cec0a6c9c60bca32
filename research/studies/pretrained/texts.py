"""The texts of the study: human and model preferences in three groups, split by prompt, and the suites' responses.

They are written to one file in the cache, named by their hash, so that jobs need neither the data nor the suites.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....rm.data.conversation_split import first_turn
from ....rm.data.pairs import load_pairs
from ....rm.types import OVERALL, Example, Messages, PreferencePair
from .._runs.texts_file import store_texts, stored_texts
from ..every_suite import Loaded, load_suite
from ..human_preferences import without_prompts

SOURCES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "dialogue": {
        "HH harmless": ["data/hh_rlhf/harmless_base_test.public.jsonl.gz"],
        "HH helpful": [
            "data/hh_rlhf/helpful_rmgallery.public.jsonl.gz",
            "data2/hh_helpful_1k/pairs.jsonl.gz",
        ],
        "UltraFeedback": ["data/ultrafeedback_sample/train.jsonl.gz", "data/ultrafeedback_sample/eval.jsonl.gz"],
        "arena": ["data2/arena_bench_v1/pairs.jsonl.gz"],
        "kto mix": ["data2/kto_mix_test/pairs.jsonl.gz"],
        "just-eval safety": ["data2/just_eval_safety/pairs.jsonl.gz"],
    },
    "facts": {
        "EVOUNA": ["data2/evouna_qa/pairs.jsonl.gz"],
        "TruthfulQA": ["data2/truthfulqa_pairs/pairs.jsonl.gz"],
        "Themis": ["data2/tara_themis/pairs.jsonl.gz"],
    },
    "writing": {
        "UKP arguments": ["data2/ukp_convarg1/pairs.jsonl.gz"],
        "TL;DR": ["data2/tldr_axis/comparisons.jsonl.gz", "data2/tldr_axis/pairs_from_ratings.jsonl.gz"],
        "SummEval": ["data2/summeval/pairs.jsonl.gz"],
        "HANNA": ["data2/hanna_stories/pairs.jsonl.gz"],
    },
}
"""Files by source and group. HH, UKP, TL;DR, SummEval and HANNA were labelled by humans, EVOUNA's answers too."""
HUMAN = ("HH harmless", "HH helpful")
"""Sources of the held-out human pairs."""
MIXES: Mapping[str, Mapping[str, float]] = {
    "dialogue": {"dialogue": 1.0},
    "and facts": {"dialogue": 0.5, "facts": 0.5},
    "everything": {"dialogue": 0.5, "facts": 0.25, "writing": 0.25},
}
"""Shares of the groups in a training set; a group that has fewer pairs gives all it has."""
SUITES = ("rewardbench", "rm_bench", "judgebench", "llmbar", "rmb")
MOST = 8
"""Pairs of one prompt, of every source: some have a hundred."""
PARTS = {"held-out": range(4), "validation": range(4, 6), "train": range(6, 20)}
"""Twentieths of the prompts: a fifth is held out and rated once by final models, a tenth chooses the recipe."""


class Texts(NamedTuple):
    """Pairs by part and group, and the suites' prompts with their responses."""

    pairs: Mapping[str, Mapping[str, Sequence[PreferencePair]]]
    suites: Mapping[str, Sequence[tuple[Messages, Sequence[str]]]]

    def part(self, name: str) -> list[PreferencePair]:
        """Return the pairs of all groups; of the parts that are rated, those of the dialogues alone."""
        groups = self.pairs[name] if name == "train" else {"dialogue": self.pairs[name]["dialogue"]}
        return [pair for pairs in groups.values() for pair in pairs]

    def training(self, mix: str, number: int, seed: int) -> list[PreferencePair]:
        """Return about `number` training pairs of a mix, chosen by the seed."""
        chosen: list[PreferencePair] = []
        for index, (group, share) in enumerate(MIXES[mix].items()):
            pairs = self.pairs["train"][group]
            order = np.random.default_rng([seed, index]).permutation(len(pairs))
            chosen += [pairs[place] for place in order[: round(share * number)]]
        return chosen

    def rated(self, part: str) -> list[Example]:
        """Return what a model rates: the pairs of a part, chosen and rejected in turn, or the responses of a suite."""
        if part in self.suites:
            return [Example(prompt, answer) for prompt, answers in self.suites[part] for answer in answers]
        return [example for pair in self.part(part) for example in pair.examples]


def prepared(data: Path, cache: Path, rows: int | None) -> tuple[str, dict[str, Loaded], dict[str, Any]]:
    """Write the texts to the cache; return their name, the suites and how many pairs each source has."""
    loaded = {name: load_suite(name, data / "data", rows) for name in SUITES}
    prompts = [case.prompt for suite in loaded.values() for case in suite.cases]
    counts: dict[str, Any] = {}
    pairs: dict[str, dict[str, list[list]]] = {part: {group: [] for group in SOURCES} for part in PARTS}
    for group, sources in SOURCES.items():
        for source, files in sources.items():
            found, report = load_pairs([str(data / file) for file in files], on_bad_row="skip")
            usable, dropped = without_prompts(decided(found), prompts)
            kept = list(at_most(usable, MOST))[:rows]
            counts[source] = {"read": report.read, "in a suite": len(dropped), "kept": len(kept)}
            for pair in kept:
                pairs[part_of(pair)][group].append([source, pair.prompt, *pair.texts])
    suites = {name: [[case.prompt, case.texts] for case in suite.cases] for name, suite in loaded.items()}
    return store_texts(cache, {"pairs": pairs, "suites": suites}), loaded, counts


@lru_cache(maxsize=1)
def load_texts(cache: Path, name: str) -> Texts:
    """Read the texts of a name."""
    values = stored_texts(cache, name)

    def pair(index: int, row: list) -> PreferencePair:
        source, prompt, chosen, rejected = row
        return PreferencePair(str(index), tuple(prompt), chosen, rejected, source)

    pairs = {
        part: {group: [pair(index, row) for index, row in enumerate(rows)] for group, rows in groups.items()}
        for part, groups in values["pairs"].items()
    }
    suites = {suite: [(tuple(prompt), answers) for prompt, answers in rows] for suite, rows in values["suites"].items()}
    return Texts(pairs, suites)


def decided(pairs: Sequence[PreferencePair]) -> list[PreferencePair]:
    """Return the pairs with the winner as chosen, without ties; without a label for `overall` it is the chosen one."""
    named = (pair if OVERALL not in pair.wins else pair.preferred() for pair in pairs)
    return [pair for pair in named if pair is not None]


def at_most(pairs: Sequence[PreferencePair], most: int) -> Iterator[PreferencePair]:
    """Yield at most so many pairs of a prompt, evenly spread over those it has."""
    by_prompt: dict[str, list[PreferencePair]] = {}
    for pair in pairs:
        by_prompt.setdefault(first_turn(pair.prompt), []).append(pair)
    for some in by_prompt.values():
        yield from (some[round(index * len(some) / min(most, len(some)))] for index in range(min(most, len(some))))


def part_of(pair: PreferencePair) -> str:
    """Return the part that a pair is in, by its first user turn alone."""
    digest = hashlib.sha256(f"pretrained|{first_turn(pair.prompt)}".encode()).hexdigest()
    twentieth = int(digest, 16) % 20
    return next(part for part, twentieths in PARTS.items() if twentieth in twentieths)
