"""`respread migrate`: converts settings of descheduler to policies of Respread.

`inputs` finds policies of descheduler in files, and how descheduler runs. `profiles` reads them. `policies` converts
each profile that restores topology spread to the settings of a policy.
"""
