"""HTTP with the API server: credentials, requests, lists, the Lease, Events. Only `handlers/` also uses HTTP."""
