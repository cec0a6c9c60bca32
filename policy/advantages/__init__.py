"""Advantage estimators: how much better a completion or token was than expected; one module per formula."""
