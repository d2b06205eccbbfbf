"""The operator's edge: Kopf handlers that feed the cluster state, and the loop that plans and acts."""
