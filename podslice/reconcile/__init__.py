"""The meeting point: load, observe, desire, plan, act, report. Every verb is a path through here.

The dry run is the plan: `plan` and `apply` differ in what is done with it, never in how it is made.
"""
