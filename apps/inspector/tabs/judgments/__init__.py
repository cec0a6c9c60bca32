"""The judgments tab: filtered cases, one case in full, annotations and exports."""
