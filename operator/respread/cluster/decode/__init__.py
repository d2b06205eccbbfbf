"""From the API's JSON to the product's own types, one kind a module."""
