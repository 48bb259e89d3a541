"""Candidate generation by IVF-PQ: the pages worth scoring, found without reading every code."""
