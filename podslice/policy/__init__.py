"""From pods, a node and a configuration to decisions. Pure: no I/O, no clock, no environment.

Programs start with `decide.decide`, which computes one pod, and `desire.desire`, which computes the
tree of all pods. Nothing is imported here, since a verb needs only some of the modules.
"""
