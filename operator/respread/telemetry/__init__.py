"""What users see of the operator: logs, metrics, Events and health."""
