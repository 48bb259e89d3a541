"""Fitting the refiner and the decoder; nothing else needs torch."""
