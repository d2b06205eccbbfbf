"""The reconcile loop: observe, follow the moves under way, plan, evict, report."""
