"""Routing by a linear probe on metadata and on frozen hidden states of the prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.special import expit

from ....rm.errors import UNREADABLE, DataError
from ....rm.types import content_hash
from .features import METADATA, REWARDS, CaseFeatures, feature_numbers
from .rule import Need, save_rule

if TYPE_CHECKING:
    from ....rm.kinds.embedding.model import Embedder

WEIGHTS = "probe.safetensors"
STATES = "hidden states"
GRID = {"C": [10.0**power for power in range(-5, 2)]}
FOLDS, STEPS = 5, 5000


@dataclass(frozen=True)
class LinearProbe:
    """Logistic regression on standardised inputs x [F]: P = σ(b + Σ_j w_j (x_j - μ_j) / σ_j).

    b is the bias, w [F] the weights, and μ [F] and σ [F] the means and standard deviations of the inputs.
    """

    mean: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    """Bias b, shape [1]."""

    def terms(self, inputs: np.ndarray) -> np.ndarray:
        """Return the terms w_j (x_j - μ_j) / σ_j of the log-odds [N, F], without the bias."""
        return (inputs - self.mean) / self.scale * self.weights


class Probe:
    """P(the strong judge is needed) by L2-regularised logistic regression on features and states.

    P = σ(b + w · x), fitted by min_w ½|w|² - C Σ_i log P(z_i | x_i) for labels z_i. The standardised inputs x are the
    named features, then the mean hidden state of the prompt under a frozen encoder, if there is one. Linear probes for
    routing are from Pre-Route (arXiv:2605.10235), which reads states under its guideline; the inputs here are ours.
    """

    name = "probe"

    def __init__(
        self,
        inputs: Sequence[str],
        linear: LinearProbe,
        embedder: "Embedder | None" = None,
        facts: Mapping[str, Any] = MappingProxyType({}),
    ):
        self.inputs, self.linear, self.embedder, self.facts = tuple(inputs), linear, embedder, dict(facts)
        self.needs = tuple(name for name in inputs if name in REWARDS)
        encoder = [embedder.fingerprint, embedder.max_length, embedder.dtype] if embedder else None
        self.contract = content_hash(["probe", self.inputs, encoder, *(a.tolist() for a in vars(linear).values())])

    def __call__(self, features: Sequence[CaseFeatures]) -> list[Need]:
        """Return the probabilities. Each reason names the inputs with the largest terms of the log-odds."""
        terms = self.linear.terms(probe_inputs(features, self.inputs, self.embedder))
        probabilities = expit(terms.sum(axis=1) + self.linear.bias)
        return [self._need(float(p), row) for p, row in zip(probabilities, terms, strict=True)]

    def _need(self, probability: float, terms: np.ndarray) -> Need:
        number = len(self.inputs)
        by_input = dict(zip(self.inputs, terms[:number].tolist(), strict=True))
        if self.embedder:
            by_input[STATES] = float(terms[number:].sum())
        if missing := [name for name, term in by_input.items() if np.isnan(term)]:
            return Need(float("nan"), f"The case has no {missing[0]}.")
        return Need(probability, _reason(by_input))

    def save(self, folder: Path) -> None:
        """Save the weights as safetensors, and the settings, the encoder's name and its fingerprint as JSON."""
        names = ("encoder", "fingerprint", "max_length", "dtype")
        encoder = {name: vars(self.embedder)[name] for name in names} if self.embedder else None
        save_rule(folder, self.name, {"inputs": self.inputs, "encoder": encoder, "facts": self.facts})
        save_file({name: np.ascontiguousarray(array) for name, array in vars(self.linear).items()}, folder / WEIGHTS)


def _reason(terms: Mapping[str, float]) -> str:
    """Return a sentence with the largest terms for and against the strong judge.

    >>> _reason({"prompt length": 0.5, "code": -0.25, "maths": 0.0})
    'The main reason for the strong judge is prompt length (+0.50); the main reason against it is code (-0.25).'
    """
    highest, lowest = (pick(terms, key=lambda name: terms[name]) for pick in (max, min))
    above = f"the main reason for the strong judge is {highest} ({terms[highest]:+.2f})" if terms[highest] > 0 else ""
    below = f"the main reason against {'it is' if above else 'the strong judge is'} {lowest} ({terms[lowest]:+.2f})"
    parts = [above, below if terms[lowest] < 0 else ""]
    sentence = "; ".join(part for part in parts if part) or "no input is above or below its mean"
    return f"{sentence[0].upper()}{sentence[1:]}."


def probe_inputs(
    features: Sequence[CaseFeatures], names: Sequence[str], embedder: "Embedder | None" = None
) -> np.ndarray:
    """Return the probe's inputs [N, F + D]: the named features, then the prompt's mean hidden state from an encoder."""
    numbers = feature_numbers(features, names)
    return np.hstack([numbers, embedder([each.prompt for each in features])]) if embedder else numbers


def fit_probe(
    features: Sequence[CaseFeatures],
    needed: np.ndarray,
    *,
    inputs: Sequence[str] = METADATA,
    embedder: "Embedder | None" = None,
    C: float | None = None,
    seed: int = 0,
) -> Probe:
    """Fit a probe to labels [N] in {0, 1} (`strong_needed`). Raise an error for NaN inputs.

    By default, `C` is the power of ten in [1e-5, 10] with the lowest cross-validated log loss. The five folds keep the
    cases of a prompt together and are shuffled by `seed`.
    """
    values, groups = probe_inputs(features, inputs, embedder), [each.prompt for each in features]
    if np.isnan(values).any():
        count = int(np.isnan(values).any(axis=1).sum())
        raise DataError(f"{count} of {len(values)} cases have a missing value; leave out these cases or the input")
    linear, C = fit_logistic(values, np.asarray(needed), groups, C=C, seed=seed)
    return Probe(inputs, linear, embedder, {"C": C, "cases": len(needed), "needed": int(np.sum(needed))})


def fit_logistic(
    inputs: np.ndarray, labels: np.ndarray, groups: Sequence[str], *, C: float | None = None, seed: int = 0
) -> tuple[LinearProbe, float]:
    """Fit standardised logistic regression to inputs [N, F] and labels [N]. Return the model and C; see `fit_probe`."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold
    from sklearn.preprocessing import StandardScaler

    rarer = min(np.bincount(labels, minlength=2)) if len(labels) else 0
    least = 1 if C else FOLDS
    if rarer < least:
        raise DataError(
            f"{int(labels.sum())} of {len(labels)} cases need the strong judge; a probe needs at least {least} cases "
            "of either kind" + ("" if C else ", or a given C")
        )
    scaler = StandardScaler().fit(inputs)
    standardised = scaler.transform(inputs)
    if C is None:
        folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
        search = GridSearchCV(LogisticRegression(max_iter=STEPS), GRID, scoring="neg_log_loss", cv=folds)
        model = search.fit(standardised, labels, groups=groups).best_estimator_
    else:
        model = LogisticRegression(C=C, max_iter=STEPS).fit(standardised, labels)
    return LinearProbe(scaler.mean_, scaler.scale_, model.coef_[0], model.intercept_), float(model.C)


def load_probe(
    folder: Path, settings: Mapping[str, Any], *, cache: Path | None = None, trust_remote_code: bool = False
) -> Probe:
    """Load a saved probe. Raise an error if its encoder's weights differ from the weights used in the fit."""
    try:
        linear = LinearProbe(**load_file(folder / WEIGHTS))
        inputs, encoder, facts = tuple(settings["inputs"]), settings["encoder"], settings["facts"]
        feature_numbers([], inputs)
        if encoder is None and not all(array.shape == (len(inputs),) for array in (linear.mean, linear.weights)):
            raise ValueError(f"{len(inputs)} inputs and {linear.weights.shape} weights")
    except (*UNREADABLE, SafetensorError) as error:
        raise DataError(f"{folder}: not a complete probe ({error}); fit it again") from error
    embedder = _embedder(folder, encoder, cache, trust_remote_code) if encoder else None
    return Probe(inputs, linear, embedder, facts)


def _embedder(folder: Path, encoder: Mapping[str, Any], cache: Path | None, trust_remote_code: bool) -> "Embedder":
    options = {name: encoder[name] for name in ("max_length", "dtype")}
    embedder = open_embedder(encoder["encoder"], cache=cache, trust_remote_code=trust_remote_code, **options)
    if embedder.fingerprint != encoder["fingerprint"]:
        raise DataError(
            f"{folder}: the encoder '{encoder['encoder']}' is not the one that the probe was fitted with; restore it, "
            "or fit the probe again"
        )
    return embedder


def open_embedder(
    encoder: str,
    *,
    max_length: int = 512,
    dtype: str = "float32",
    cache: Path | None = None,
    trust_remote_code: bool = False,
) -> "Embedder":
    """Open a frozen encoder (path or Hub id) whose mean hidden states are a probe's inputs."""
    from ....rm.kinds.embedding.model import new_embedding

    options = {"max_length": max_length, "dtype": dtype, "trust_remote_code": trust_remote_code}
    return new_embedding(encoder, cache=cache, **options).embedder
