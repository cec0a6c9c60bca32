"""Explanations of margins: exact attributions of sums, and effects of counterfactual responses for any reward model."""
