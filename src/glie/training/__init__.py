"""Fit the refiner and the decoder. Searching with a fitted codec needs no torch."""
