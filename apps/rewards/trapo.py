"""TraPO: majority labels for unlabelled prompts whose pass rates develop like those of labelled prompts."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import cosine_similarity

from ...policy.types import Cycle
from ...rm.errors import UsageError
from ...rm.types import Example, prompt_text
from ._answers import BOXED, last_answer, majority_answer
from ._open import RunFacts


def trapo(
    *, run: RunFacts, label: str = "label", answer: str = BOXED, warm_up: int = 8, top: float = 0.1, least: float = 0.4
) -> "TrajectoryReward":
    """r_i = 1[a_i = label], with the majority answer as the label of a trusted prompt     TraPO 2025, arXiv:2512.13106

    a_i is the answer of completion i. Column `label` has the right answer, or is empty for an unlabelled prompt. The
    trajectory of a prompt is the share of right answers at each of its visits. An unlabelled prompt is trusted if its
    similarity (`similarities`) is at least `least`, or among the highest share `top` of the batch; otherwise, its
    rewards are missing. Unlabelled prompts have no rewards before a labelled one was visited more than `warm_up` times.
    The constants are those of the released code. Ours: a visit is a step with the prompt, in place of an epoch.
    """
    if not 0 <= top <= 1 or warm_up < 1:
        raise UsageError(f"trapo: top must lie in [0, 1] and warm_up must be 1 or more, got {top} and {warm_up}")
    labels = run.one_by_prompt(lambda row: str(row.get(label) or "").strip())
    if not any(labels.values()):
        raise UsageError(f"trapo: no prompt has a label in column '{label}'; label some prompts, or use majority")
    return TrajectoryReward(labels, answer, warm_up, top, least)


class TrajectoryReward:
    """Reward source with the trajectory of every prompt, which grows after each cycle of training."""

    compares = True

    def __init__(self, labels: dict[str, str], pattern: str, warm_up: int, top: float, least: float):
        self.labels, self.read, self.warm_up, self.top, self.least = labels, last_answer(pattern), warm_up, top, least
        self.paths: dict[str, list[float]] = {}

    def __call__(self, examples: Sequence[Example]) -> list[float | None]:
        """Return 1.0 or 0.0 by completion, or None for the completions of an unlabelled prompt without trust."""
        verdicts = self._verdicts(examples)
        trusted = self._trusted({prompt: [*self.paths.get(prompt, []), _mean(v)] for prompt, v in verdicts.items()})
        in_order = {prompt: iter(values) for prompt, values in verdicts.items()}
        prompts = [prompt_text(example.prompt) for example in examples]
        return [next(in_order[prompt]) if self.labels[prompt] or prompt in trusted else None for prompt in prompts]

    def learn(self, cycle: Cycle) -> dict[str, float]:
        """Append the share of right answers of each prompt to its trajectory."""
        for prompt, verdicts in self._verdicts(cycle.examples).items():
            self.paths.setdefault(prompt, []).append(_mean(verdicts))
        return {"trajectories": float(len(self.paths))}

    def state(self) -> dict[str, Any]:
        """Return the trajectories."""
        return {"paths": self.paths}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the trajectories."""
        self.paths = state["paths"]

    def _verdicts(self, examples: Sequence[Example]) -> dict[str, list[float]]:
        answers: dict[str, list[str]] = {}
        for example in examples:
            answers.setdefault(prompt_text(example.prompt), []).append(self.read(example.text))
        labels = {prompt: self.labels[prompt] or majority_answer(found)[0] for prompt, found in answers.items()}
        return {prompt: [float(a == labels[prompt] != "") for a in found] for prompt, found in answers.items()}

    def _trusted(self, paths: dict[str, list[float]]) -> set[str]:
        """Return the unlabelled prompts of the batch whose trajectories are similar to those of labelled prompts."""
        labelled = [path for prompt, path in {**self.paths, **paths}.items() if self.labels[prompt]]
        labelled = [path for path in labelled if len(path) > self.warm_up]
        unlabelled = [prompt for prompt, path in paths.items() if not self.labels[prompt] and len(path) > self.warm_up]
        if not labelled or not unlabelled:
            return set()
        scores = similarities([paths[prompt] for prompt in unlabelled], labelled)
        ranked = sorted(zip(scores, unlabelled, strict=True), reverse=True)
        number = int(self.top * len(ranked) + 1e-9)  # 0.29 · 100 is below 29 in floating point
        return {prompt for rank, (score, prompt) in enumerate(ranked) if rank < number or score >= self.least}


def similarities(paths: Sequence[Sequence[float]], labelled: Sequence[Sequence[float]]) -> list[float]:
    """Return each trajectory's mean cosine to the labelled trajectories. All are cut to the shortest and standardised.

    >>> [round(value, 3) for value in similarities([[0, 0.5, 1], [1, 0.5, 0]], [[0.2, 0.4, 0.6, 0.6]])]
    [1.0, -1.0]
    """
    length = min(map(len, [*paths, *labelled]))
    x, y = (torch.tensor([path[:length] for path in rows], dtype=torch.float64) for rows in (paths, labelled))
    x, y = ((rows - rows.mean(1, keepdim=True)) / (rows.std(1, keepdim=True) + 1e-8) for rows in (x, y))
    return cosine_similarity(x[:, None], y[None], dim=2).mean(1).tolist()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
