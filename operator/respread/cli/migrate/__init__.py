"""`respread migrate`: converts settings of descheduler to policies of Respread.

`inputs` finds policies of descheduler in files, and how descheduler runs. `profiles` and `v1alpha1` read them.
`policies` converts each profile that restores topology spread to the settings of a policy, with a module for each part.
`render` writes them as YAML with comments.
"""
