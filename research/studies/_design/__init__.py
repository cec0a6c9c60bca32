"""Design of studies: claims decided before the runs, number of seeds from a pilot, and the assessment of the claims."""

from .assessment import Assessment, assess, assess_samples, assessment_facts, claims_figure, claims_table, study_facts
from .claims import Claim, paired_differences, read_claims
from .design import BUDGET, COMPLETIONS, Design, Pilot, design_markdown, plan_seeds
from .pilot_first import Values, named_values, run_pilot_first, run_stages

__all__ = [
    "BUDGET",
    "COMPLETIONS",
    "Assessment",
    "Claim",
    "Design",
    "Pilot",
    "Values",
    "assess",
    "assess_samples",
    "assessment_facts",
    "claims_figure",
    "claims_table",
    "design_markdown",
    "named_values",
    "paired_differences",
    "plan_seeds",
    "read_claims",
    "run_pilot_first",
    "run_stages",
    "study_facts",
]
