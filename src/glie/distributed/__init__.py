"""Work on many machines, by Ray."""
