"""The overview tab: leaderboard, policy trainings, runs in progress, and damaged runs."""

from ...components import Site
from ...panes import Query, View
from ...run_list import JUDGED
from .leaderboard import boards_html
from .queries import overview
from .runs_html import runs_html


def view(site: Site, _query: Query) -> View:
    """Return the leaderboard, and cards of the other runs."""
    listed = overview(site.root)
    runs = runs_html(listed, str(site.nothing_yet(JUDGED)))
    return View({}, {"leaderboard": boards_html(listed.boards), "runs": runs}, growing=True)
