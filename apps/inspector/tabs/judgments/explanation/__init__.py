"""Why a case has its score: criteria, verdicts, a rubric to edit, and attributions of a reward model."""
