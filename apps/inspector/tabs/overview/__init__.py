"""The overview tab: a leaderboard of every evaluation, policy trainings, runs in progress, and damaged runs."""

from ...html import skeleton_html, template

TEMPLATE = f'<div class="part" id="leaderboard">{skeleton_html()}</div>{template("runs")}'
