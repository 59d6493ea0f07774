"""Observe, assess, plan, act and report: every operation on pods.

`plan` and `apply` use the same plan; `plan` only shows it.
"""
