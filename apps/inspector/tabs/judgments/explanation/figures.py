"""Figure of the rewards of several objectives."""

import plotly.graph_objects as go

from ......benchmarks.explanation.types import Explanation
from .... import figures
from ....figures import PALETTE


def objectives_figure(explanation: Explanation) -> go.Figure:
    """Draw the rewards of all objectives as bars, one colour per response."""
    figure = go.Figure()
    names = [*map(figures.plot_text, explanation.objectives)]
    for index, (label, rewards) in enumerate(zip(explanation.labels, explanation.rewards, strict=True)):
        figure.add_bar(x=names, y=rewards, name=label.capitalize(), marker_color=PALETTE[index])
    return figures.layout(figure, x="objective", y="reward")
