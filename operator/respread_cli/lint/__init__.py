"""`respread lint`: what is wrong with manifests, before they are in a cluster."""
