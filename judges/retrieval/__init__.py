"""Retrieval for judges: facet-aware encoder, vector and lexical search, nearest examples and rubrics of a case."""
