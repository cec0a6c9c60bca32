"""The plan of the study, written before the first run that counts.

Primary question, for UniARM with greedy decoding: does the weight of `harmless` raise the rating of harmlessness, and
that of `helpful` the rating of helpfulness, by more than under the guide with shuffled labels? Per prompt the slope of
the rating over the five preferences is computed, length taken out, in standard deviations of the base model's ratings;
the difference of both guides' slopes has Student's 95 % interval over 60 prompts. Both objectives have to move. With a
standard deviation of 1 between prompts, 60 of them show a difference of 0.37 with 80 % power.

A pilot of 48 pairs and 2,191 tokens, which are not counted, took 1.1 seconds a pair of one core in training and decoded
86 tokens a second under a guide, with the language model's weights in bfloat16; the sizes below are for about one and
a half hours of a core. Sampled completions are of four methods only.

An earlier run of longer texts, whose completions were never decoded, had a UniARM guide of 600 pairs decide 46.6 and
54.4 % of the held-out pairs as labelled, so that a null result is likely. Two arms answer what would follow. A guide
with labels by length, longer or shorter, is the positive control: its completions' lengths tell whether the method
steers a language model where labels can be learned. The other is trained by the recipe of `guide_recipes`, which made
guides in small worlds stronger: centred rewards, β of 0.3 and a slower A.

Everything else is description: other methods, sampled completions, fluency, lengths, single preferences. Nothing is
tuned: learning rate and β are those of `docs/guides/decoding.md`, every method reads the same number of pairs.
"""

from typing import Any, NamedTuple

from .models import LENGTH, Completions, Guide, Rater
from .texts import OBJECTIVES

PAIRS, SEED = 200, 0
WEIGHT = 1.0
TEMPERATURES = (0.0, 1.0)
CURVE = (50, 100)
"""Numbers of pairs of smaller UniARM guides, for the curve of held-out pairs over training tokens; none decodes."""
BASE, INSTRUCTED, UNIARM, SHUFFLED, BLIND = "base model", "instructions", "UniARM", "shuffled labels", "blind"
RECIPE = "UniARM, recipe"
RECIPE_SETTINGS = {"token_baseline": "expected", "train_beta": 0.3, "rate_of_a": 0.2}
"""Of `guide_recipes`, but for its average of weights."""
SAMPLED = (UNIARM, SHUFFLED)
"""Guides whose completions are sampled too, beside those of the base model and of instructions."""


class Sizes(NamedTuple):
    """Sizes of the study; smaller ones are a dry run."""

    pairs: int = PAIRS
    prompts: int = 60
    longest: int = 32
    curve: tuple[int, ...] = CURVE


def guides(texts: str, model: str, sizes: Sizes) -> dict[str, tuple[Guide, ...]]:
    """Return the guides of every method and control; all read the same number of pairs."""

    def guide(method: str, objectives: tuple[str, ...] = OBJECTIVES, pairs: int = sizes.pairs, **options: Any) -> Guide:
        return Guide(texts, model, SEED, method, objectives, pairs, **options)

    return {
        UNIARM: (guide("uniarm"),),
        SHUFFLED: (guide("uniarm", control="shuffled"),),
        BLIND: (guide("uniarm", control="blind"),),
        RECIPE: (guide("uniarm", settings=RECIPE_SETTINGS),),
        "PARM": (guide("parm"),),
        "GenARM": tuple(guide("genarm", (name,), sizes.pairs // 2) for name in OBJECTIVES),
        **{f"UniARM, {pairs} pairs": (guide("uniarm", pairs=pairs),) for pairs in sizes.curve},
    }


def completions(texts: str, model: str, sizes: Sizes) -> dict[tuple[str, float], Completions]:
    """Return the completions of every method by name and temperature; those of most guides are greedy only."""
    methods = guides(texts, model, sizes)
    options = {"prompts": sizes.prompts, "longest": sizes.longest, "seed": SEED}
    jobs = {}
    for temperature in TEMPERATURES:
        jobs[BASE, temperature] = Completions(texts, model, temperature=temperature, **options)
        jobs[INSTRUCTED, temperature] = Completions(texts, model, temperature=temperature, instructed=True, **options)
        for name, of_method in methods.items():
            if name in SAMPLED or (temperature == 0 and "pairs" not in name):
                jobs[name, temperature] = Completions(
                    texts, model, of_method, temperature=temperature, weight=WEIGHT, **options
                )
    return jobs


def length_control(texts: str, model: str, sizes: Sizes) -> tuple[Guide, Completions]:
    """Return the positive control's guide and its greedy completions."""
    guide = Guide(texts, model, SEED, "uniarm", LENGTH, sizes.pairs, control="length")
    options = {"prompts": sizes.prompts, "longest": sizes.longest, "seed": SEED}
    return guide, Completions(texts, model, (guide,), weight=WEIGHT, **options)


def raters(texts: str, model: str) -> dict[tuple[str, str], Rater]:
    """Return the raters by kind and objective: MiniLM, and TF-IDF with length beside it."""
    return {(kind, name): Rater(texts, model, SEED, name, kind) for kind in ("scalar", "linear") for name in OBJECTIVES}
