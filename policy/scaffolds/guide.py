"""Guide: hints for the prompts that the policy cannot solve without hints."""

from ._scaffold import Schedule


def guide(*, share: float = 1.0) -> Schedule:
    """λ_i = `share` for all completions of a group without a success, 0 for other groups      Guide: arXiv:2506.13923

    λ_i is the share of hints for completion i. A group fails if none of its completions has a weighted sum of rewards
    above 0; it is then generated again with hints in the prompt. Its ratios are π(y | x) / π_old(y | x, h), relative to
    the policy with the hint h, as in the paper. Here hints are the points of the prompt's rubric. The first generation
    is rated to find failed groups; completions of other groups are rated twice.
    """
    if not 0 < share <= 1:
        raise ValueError(f"guide: share must lie in (0, 1], got {share}")

    def shares(progress: float, size: int) -> list[float]:
        return [share] * size

    shares.after_failure = True  # type: ignore[attr-defined]
    return shares
