"""The reconcile loop: observe, follow the moves in flight, plan, evict, report."""
