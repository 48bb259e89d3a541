"""Pure functions of arrays: one signature, a plain reference, a fast version proven equal."""
