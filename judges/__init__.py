"""Judges: cases, judgments, kinds of judges, parsing of replies, rubrics and language model backends."""
