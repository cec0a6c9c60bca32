"""CDRRM, rubrics from contrast (arXiv:2603.08035): diagnose each answer, synthesise rules, filter, train on them."""
