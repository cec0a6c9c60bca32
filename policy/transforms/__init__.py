"""Rewards, changed before they become advantages; one file per formula."""
