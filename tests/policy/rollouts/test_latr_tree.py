"""Trees of completions: which branches are written, looked at, and kept."""

from rewardlab.policy.rollouts.latr.lookahead_tree import LONGEST, tree

ROOT = (1, 2, 3, 4)
ENDS = {(): ROOT, (9,): (9, 2, 3, 4), (1, 8): (1, 8, 7, 7), (1, 2, 6): (1, 2, 6, 6), (1, 8, 5): (1, 8, 5, 5)}
"""How the prefixes go on."""


def written(size: int, points: dict, least: float = 0.6):
    calls = []

    def write(prefixes, number):
        calls.append((list(prefixes), number))
        whole = [
            next(end for start, end in reversed(ENDS.items()) if prefix[: len(start)] == start) for prefix in prefixes
        ]
        return [end[: len(prefix) + number] for prefix, end in zip(prefixes, whole, strict=True)]

    return tree(lambda chain: points.get(chain, []), write, size, 2, least), calls


def test_branches_that_say_the_same_are_pruned():
    """(9, 2, 3) differs from (1, 2, 3) in one of three tokens; (8, 7, 7) from (2, 3, 4) in all."""
    chains, calls = written(3, {ROOT: [(9,), (1, 8), (1, 2, 6)]})
    assert chains == [ROOT, (1, 8, 7, 7), (1, 2, 6, 6)]
    assert calls[0] == ([()], LONGEST) and calls[1] == ([(9,), (1, 8)], 2) and calls[2] == ([(1, 8, 7, 7)], LONGEST)


def test_branches_branch_behind_their_start_and_a_group_is_not_exceeded():
    points = {ROOT: [(1, 8)], (1, 8, 7, 7): [(9,), (1, 8, 5)]}
    assert written(4, points)[0] == [ROOT, (1, 8, 7, 7), (1, 8, 5, 5)]
    assert written(2, points)[0] == [ROOT, (1, 8, 7, 7)] and written(1, points)[0] == [ROOT]
    assert written(4, {}) == ([ROOT], [([()], LONGEST)])
