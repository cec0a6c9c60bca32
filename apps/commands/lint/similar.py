"""Semantic contamination: training prompts that are similar to a benchmark's by a retrieval encoder."""

from collections.abc import Mapping, Sequence

from ....judges.retrieval.index import VectorIndex, search
from ....rm.data.lint import SIMILAR, Finding
from ....rm.types import PreferencePair
from ...runs.run_folder import log, trust
from .settings import LintConfig


def similar_prompts(
    pairs: Sequence[PreferencePair], benchmarks: Mapping[str, Sequence[str]], config: LintConfig
) -> list[Finding]:
    """Return the rows with a user turn whose nearest benchmark prompt has a similarity of at least `--similar`.

        max_{u, b} sim(u, b) over the user turns u of a row and the prompts b of a benchmark, in [-1, 1]

    with `judges.retrieval.pooling.similarity`; at most one finding for each row and benchmark. Beside the shared words
    of `rm.data.contamination` it finds prompts in other words, as far as the encoder knows what they mean.
    """
    from ....judges.retrieval.encoder import load_encoder  # PyTorch, which a check without an encoder does not need

    encoder = load_encoder(str(config.encoder), **trust(config))
    turns = [(row, turn["content"]) for row, pair in enumerate(pairs) for turn in pair.prompt if turn["role"] == "user"]
    findings = []
    for name, prompts in benchmarks.items():
        known = [*dict.fromkeys(prompts)]
        hits = search(VectorIndex(encoder, known, known), [text for _, text in turns], 1)
        nearest = {}
        for (row, _), (hit,) in zip(turns, hits, strict=True):
            nearest[row] = max(hit, nearest.get(row, hit), key=lambda candidate: candidate.score)
        similar = {row: hit for row, hit in nearest.items() if hit.score >= config.similar}
        log(f"{name}: {len(similar)} of {len(nearest)} rows are similar to one of its prompts by the encoder")
        findings += [
            Finding(row, SIMILAR, f"{name}, similarity {hit.score:.2f}: {hit.id[:80]!r}")
            for row, hit in similar.items()
        ]
    return findings
