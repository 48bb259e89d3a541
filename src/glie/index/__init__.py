"""An index: a folder of codes that is searched where it lies."""
