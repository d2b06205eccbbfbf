"""An embedded real control plane with simulated nodes, for the demo, the tests and for playing."""
