"""The modules that only compute: no clock, no environment, no effects.

All of their branches are tested, and their mutants detected (`make coverage`, `make mutation`).
`python -m tests.pure` prints them for coverage.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("model", "policy", "plan")
OF_FEATURES = {
    "cpus": ("assignment", "manager"),
    "doctor": ("findings",),
    "history": ("day", "model", "recommendation", "samples"),
    "importing": ("policy",),
    "kubelet": ("model", "policy", "values"),
    "node": ("providers",),
    "quadlet": ("cron", "discovery", "transition"),
    "simulate": ("sharing",),
}
"""Feature → its modules."""


def pure_modules() -> list[Path]:
    """Return their paths below the root; a feature may be absent."""
    package = ROOT / "podslice"
    core = [path for name in PACKAGES for path in sorted((package / name).rglob("*.py"))]
    features = [
        package / f"features/{feature}/{name}.py"
        for feature, names in OF_FEATURES.items()
        for name in names
    ]
    return [path.relative_to(ROOT) for path in (*core, *features) if path.exists()]


if __name__ == "__main__":
    sys.stdout.write(",".join(map(str, pure_modules())) + "\n")
