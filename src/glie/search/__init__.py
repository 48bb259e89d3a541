"""Search in two stages: MaxSim over stored codes, then over a regenerated shortlist."""
