"""The demo: a real control plane, Deployments scaled down, and the operator restoring their spread, live."""
