"""`respread migrate`: what a descheduler is told, said in policies of ours.

`inputs` finds policies of descheduler in files, and how they are run; `profiles` and `v1alpha1` read them; `policies`
makes of each profile that restores topology spread the settings of a policy of ours, with a module for each part;
`render` writes them as YAML with comments.
"""
