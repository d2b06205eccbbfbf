"""Why something is left alone, and until when: pods, groups, policies, or everything."""
