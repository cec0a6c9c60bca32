"""Retrieval for judges: facet-aware encoder, exact and lexical search, and nearest examples and rubrics of a case."""
