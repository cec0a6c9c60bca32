"""Audits of judges: attacks, measures, agreement and the report."""
