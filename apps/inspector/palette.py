"""Colours of figures and of tokens."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#F0E442")
"""Colour-blind-safe palette of Okabe and Ito. The first two colours are the ends of diverging scales."""
