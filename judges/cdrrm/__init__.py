"""CDRRM, rubrics from contrast (arXiv:2603.08035): diagnose responses, write rules, filter them, train on them."""
