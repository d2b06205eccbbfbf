"""The commands that look at a cluster from outside: what to type, what they read, what they print, and the page."""
