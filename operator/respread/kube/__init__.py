"""Speaking HTTP with the API server, and only here: how it is reached, requests, lists, the Lease, Events."""
