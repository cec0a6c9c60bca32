"""Personalized RewardBench: responses that fit a user's profile (2026, arXiv:2604.07343)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...judges.types import Case
from ...rm.data.conversation_split import as_prompt
from ...rm.data.pairs import OnBadRow, column, text_list
from ...rm.errors import UsageError
from ._suite import ScoredSuite, case, in_random_order

POSTS = 10


def _cases(source: str, values: Mapping[str, Any], posts: int) -> Sequence[Case]:
    profile = text_list(values, "profile")[:posts]
    lines = [f"Post {i} (Category: {post['category']}):\n{post['text']}" for i, post in enumerate(profile, start=1)]
    id = f"{source}/{column(values, 'id')}"
    answers, best = in_random_order(id, column(values, "chosen"), column(values, "rejected"))
    return [case(id, as_prompt(column(values, "question") + "\n".join(lines)), answers, best, source)]


class PersonalizedRewardBench(ScoredSuite):
    """Suite with the mean over all pairs and over each domain, named by its source.

    The prompt is the question and then the user's first posts, as the authors join them. Rubric and narrative, which
    determine the right response, are left out.
    """

    name = "personalized_rewardbench"

    def __init__(self, posts: int = POSTS, on_bad_row: OnBadRow = "refuse"):
        super().__init__(on_bad_row)
        if posts < 0:
            raise UsageError(f"posts (posts of a profile in the prompt) must be 0 or more, got {posts}")
        self.posts, self.parse_part = posts, partial(_cases, posts=posts)
        if posts != POSTS:
            self.name = f"personalized_rewardbench(posts={posts})"

    def cases(self, sources: Sequence[str]) -> tuple[list[Case], list[str]]:
        """Return the cases of all rows, with a note on the number of posts."""
        cases, notes = super().cases(sources)
        return cases, [*notes, f"The prompt has the first {self.posts} posts of the profile."]


def personalized_rewardbench(posts: int = POSTS, on_bad_row: OnBadRow = "refuse") -> PersonalizedRewardBench:
    """Return the suite of Personalized RewardBench; with `posts=0` prompts have no profile."""
    return PersonalizedRewardBench(posts, on_bad_row)
