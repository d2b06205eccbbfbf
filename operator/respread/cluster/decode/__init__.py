"""Decodes the API's JSON into Respread's own types, one module per kind."""
