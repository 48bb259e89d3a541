"""Search in two stages: MaxSim over stored codes, then over the reconstructed shortlist."""
