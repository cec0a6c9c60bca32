"""The overview tab: leaderboard, policy trainings, runs in progress, and damaged runs."""

from collections.abc import Mapping

from ...components import Query, Site, View
from ...run_list import JUDGED
from .leaderboard import boards_html
from .queries import overview, ranks
from .runs_html import runs_html


def view(site: Site, _query: Query) -> View:
    """Return the leaderboard, and cards of the other runs."""
    listed = overview(site.root)
    runs = runs_html(listed, str(site.nothing_yet(JUDGED)))
    later = ("leaderboard",) if any(len(board.standings) > 1 for board in listed.boards) else ()
    return View({}, {"leaderboard": boards_html(listed.boards), "runs": runs}, growing=True, later=later)


def later(site: Site, _query: Query) -> Mapping[str, str]:
    """Return the leaderboard with ranks, which need bootstrap samples and take some seconds."""
    boards = overview(site.root).boards
    return {"leaderboard": boards_html(boards, [ranks(site.root, board) for board in boards])}
