"""The overview tab: leaderboard, policy trainings, runs in progress, and damaged runs."""

from typing import Any

import gradio as gr

from ...components import QUIET, Site
from ...html import skeleton_html
from ...run_list import JUDGED
from .leaderboard import SCRIPT, boards_html
from .queries import overview
from .runs_html import runs_html

SECONDS = 5.0


def tab(site: Site) -> None:
    """Build the tab. A timer redraws each part when its runs change."""
    boards = gr.HTML(skeleton_html(), elem_id="leaderboard", apply_default_css=False)
    runs = gr.HTML(elem_id="runs", apply_default_css=False)
    drawn, timer = gr.State(("", "")), gr.Timer(SECONDS)

    def draw(drawn: tuple[str, str]) -> list[Any]:
        listed = overview(site.root)
        new = boards_html(listed.boards), runs_html(listed, str(site.nothing_yet(JUDGED)))
        if new == drawn:
            return [gr.skip(), gr.skip(), gr.skip()]
        changed = [html if html != before else gr.skip() for html, before in zip(new, drawn, strict=True)]
        return [*changed, new]

    outputs = [boards, runs, drawn]
    site.page.load(draw, drawn, outputs, **QUIET)
    timer.tick(draw, drawn, outputs, **QUIET)
    site.page.load(None, None, None, js=SCRIPT)
