"""Reads the cluster that a command's options select."""
