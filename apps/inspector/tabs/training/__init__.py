"""The training tab: metrics over the steps of a training, and the completions of a policy."""

from ...html import columns, skeleton_html, template

PANELS = ("reward", "components", "proxy and gold", "KL", "length", "entropy", "loss", "accuracy", "margin")
PANEL_IDS = {name: f"rl-{name.replace(' ', '-').lower()}" for name in PANELS}
REWARD_IDS = [f"reward-{index}" for index in range(6)]
"""Ids of the figures of metrics that reward functions log; the table of changes lists all such metrics."""
TEMPLATE = "".join(
    [
        template("training-controls"),
        f'<div class="part" id="progress">{skeleton_html()}</div>',
        template("changes"),
        f'<div class="panels">{template(*PANEL_IDS.values())}</div>',
        columns(template("over-kl"), template("any-column", "own")),
        f'<div class="panels">{template(*REWARD_IDS)}</div>',
        template("rollouts-bar", "rollouts", "rollout"),
        columns(template("waterfall", "waterfall-note"), template("strip-bar", "strip")),
        template("about-training"),
    ]
)
