"""The page: what a browser shows, as files, and as one file that needs no other."""
