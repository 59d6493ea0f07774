"""What `podslice simulate` predicts, with which measurements are compared."""

from podslice.features.simulate.sharing import Assumptions, CpuGroup, cpu_tree, share_cpu

__all__ = ["Assumptions", "CpuGroup", "cpu_tree", "share_cpu"]
