"""The demo: scales Deployments down on a real control plane, and shows how the operator restores their spread."""
