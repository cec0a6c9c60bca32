"""Explanations of a case's score: criteria, verdicts, an editable rubric, and attributions of a reward model."""
