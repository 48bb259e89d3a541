"""Candidate generation by IVF-PQ: choose the pages worth scoring without reading every code."""
