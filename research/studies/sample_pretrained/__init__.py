"""Study of `rewardlab sample` on a pretrained language model with a held-out reward model.

Plan, written before the first run. SmolLM2-135M-Instruct (4-bit weights, dequantised to bfloat16) gives 8 completions
of at most 48 tokens to each of 200 held-out prompts, at a temperature of 1; half of the prompts come from pairs of
helpfulness, half from pairs of harmlessness. `rewardlab sample` takes the best by a MiniLM reward model of helpfulness,
beside a random completion of the same prompt. The held-out scorer is a MiniLM reward model of helpfulness that was
trained on other prompts (the rater of `pretrained_guides`); neither has a tested prompt in training.

Primary question: does the held-out reward model prefer the best to the random completion? The difference is in standard
deviations of its rewards within a prompt, with Student's 95 % interval over prompts. With a standard deviation of 1.4
of the difference, 200 prompts show 0.28 with 80 % power.

The scorer decides 53.4 % of 131 held-out pairs as labelled and the held-out reward model 63.4 %, which was known before
this plan, so that a null result is likely. Baselines are the longest completion, and the best by the held-out reward
model itself, the ceiling. Characters and both kinds of prompts are description. One seed; nothing is tuned.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ....rm.types import prompt_text
from .._runs.job_cache import Arrays, Job, run_jobs
from .._runs.sampled import LENGTH, sample_best
from .._runs.saved_models import model_folder
from .._study import Log, Study
from ..pretrained_guides.models import DTYPE, Rater
from ..pretrained_guides.plan import SEED
from ..pretrained_guides.texts import LONGEST_RATED, load_texts, prepared
from ..pretrained_policies.runs import HELPFUL, Proxy
from .report import HELD_OUT, LENGTHS, SCORER, text


class Sizes(NamedTuple):
    """Sizes of the study; smaller ones are a dry run."""

    prompts: int = 200
    n: int = 8
    longest: int = 48


SMALL = Sizes(prompts=4, n=2, longest=4)


@dataclass(frozen=True)
class Best(Job):
    """The best of n completions of each test prompt by a reward model, and a random one, by `rewardlab sample`."""

    model: str
    scorer: Proxy
    held_out: Rater
    sizes: Sizes

    def __str__(self) -> str:
        return f"best of {self.sizes.n} of {self.sizes.prompts} prompts"

    def work(self, cache: Path) -> Arrays:
        """Return what `sample_best` does."""
        prompts = load_texts(cache, self.scorer.texts).prompts(self.sizes.prompts, LONGEST_RATED)
        rewards = {SCORER: str(self.scorer.folder(cache)), HELD_OUT: str(self.held_out.folder(cache)), LENGTHS: LENGTH}
        return sample_best(
            self.file(cache).with_suffix(""),
            prompts,
            rewards,
            base=model_folder(self.model),
            dtype=DTYPE,
            n=self.sizes.n,
            max_new_tokens=self.sizes.longest,
            seed=SEED,
        )


def sample_pretrained(
    data: Path,
    cache: Path,
    *,
    seed: int = 0,
    workers: int = 2,
    rows: int | None = None,
    model: str = "smollm2",
    encoder: str = "minilm",
    log: Log = print,
) -> Study:
    """Sample completions of held-out prompts, select the best by a reward model, rate them by another, and report.

    `data` holds the folders `data` and `data2`; results of finished jobs are read from `cache`. `rows` makes it a dry
    run; `model` and `encoder` may be folders of other models. `seed` has no effect: the seeds are in the plan.
    """
    sizes = Sizes() if rows is None else SMALL
    name, _ = prepared(data, cache, rows)
    scorer, held_out = Proxy(name, encoder, SEED), Rater(name, encoder, SEED, HELPFUL)
    best = Best(model, scorer, held_out, sizes)
    for stage in ([scorer, held_out], [best]):
        run_jobs(stage, cache, workers, log)
    prompts = [prompt_text(prompt) for prompt in load_texts(cache, name).prompts(sizes.prompts, LONGEST_RATED)]
    gaps = {SCORER: scorer.result(cache)["gaps"], HELD_OUT: held_out.result(cache)["gaps"]}
    plan = (__doc__ or "").split("\n\n", 1)[1].strip()
    sources = [str(data / part) for part in ("data/MANIFEST.tsv", "data2/MANIFEST.tsv")]
    facts = {"texts": name, "sizes": sizes._asdict()}
    return Study(text(plan, best.result(cache), gaps, prompts), sources, {}, {}, facts)
