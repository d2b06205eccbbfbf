"""The page for browsers: as files, and as one self-contained file."""
