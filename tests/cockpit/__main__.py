"""Write screenshots of the page in a real Cockpit, in light, dark and narrow: sudo python -m tests.cockpit DIRECTORY."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.cockpit.browser import Browser
from tests.cockpit.host import MANIFESTS, boot, browser_in, log_in
from tests.lab.machine import Machine
from tests.packaging.builds import Packages

PODS = {
    "web": "--cpu 500m --cpu-limit 1500m --memory 64Mi --memory-limit 256Mi --container app --container worker",
    "db": "--cpu 250m --cpu-limit 250m --memory 96Mi --memory-limit 96Mi",
    "cache": "--cpu 100m --memory 32Mi --memory-limit 64Mi",
    "batch": "",
    "video": "--cpu 2 --memory 900Gi",
}
CONFIGURATION = (
    'kube-reserved = "cpu=100m,memory=256Mi"\nsystem-reserved = "cpu=200m,memory=512Mi"\n'
)
BUSY = "while :; do :; done"
FILL = "import time; held = bytearray({mib} << 20); print('ready', flush=True); time.sleep(900)"
COMMANDS = (
    *(
        "web -c app -- sh -c '" + BUSY + "'",
        "batch -- sh -c '" + BUSY + "'",
        "web -c worker -- sleep 900",
    ),
    f'cache -- python3 -c "{FILL.format(mib=47)}"',
    f'db -- python3 -c "{FILL.format(mib=30)}"',
)
HISTORY = """
import math, time
from pathlib import Path
from podslice.features.history.day import Day
from podslice.features.history.files import UsageFiles
from podslice.features.history.model import PodHistory, UsageHistory
from podslice.features.history.samples import add_cpu, add_memory

history, day = UsageHistory(), Day()
for second in range(int(time.time()) - 86400, int(time.time()), 60):
    hour = second / 3600 % 24
    milli = int(150 + 700 * max(0, math.sin((hour - 6) / 24 * 2 * math.pi)) + second // 60 * 37 % 90)
    used = int((60 + 5 * hour + second // 60 * 13 % 9) * 2**20)
    history = add_memory(add_cpu(history, milli, second), used, second)
    day = day.add(second, milli, used)
files = UsageFiles(Path("/var/lib/podslice/usage"))
files.write(files.pod_path("shop/web"), PodHistory(pod=history, day=day))
"""
WIDTHS = {"light": (1400, 1000), "dark": (1400, 1000), "narrow": (360, 800)}


def main(directory: Path) -> None:
    """Take all screenshots."""
    with boot(Packages()) as machine:
        prepare(machine)
        with browser_in(machine) as browser:
            log_in(browser, "root")
            for name in WIDTHS:
                take(browser, directory, name)


def prepare(machine: Machine) -> None:
    """Apply pods with load and a recorded day, one of which does not fit, and change a value."""
    machine.put("/etc/podslice/podslice.toml.d/50-shop.toml", CONFIGURATION)
    for name, options in PODS.items():
        machine.run("sh", "-c", f"podslice new {name} -n shop {options} > {MANIFESTS}/{name}.yaml")
    machine.run("podslice", "apply", check=False)
    for command in COMMANDS:
        machine.run("sh", "-c", f"podslice run -n shop --detach {command}")
    machine.run("python3", "-c", HISTORY)
    slice_ = "kubepods-burstable-podcache.shop.slice"
    machine.run("systemctl", "set-property", "--runtime", slice_, "CPUWeight=100")


def take(browser: Browser, directory: Path, name: str) -> None:
    """Take the screenshots of one size and color scheme."""
    browser.resize(*WIDTHS[name])
    browser.be_dark(dark=name == "dark")
    browser.run("window.location.hash = '#/'")
    browser.wait("document.querySelector('.tree .bar')")
    time.sleep(7)  # two measurements
    browser.screenshot(directory / f"overview-{name}.png")
    browser.run("window.location.hash = '#/pod/shop/web'")
    browser.wait("document.querySelector('[aria-label=Events]')")
    time.sleep(2)
    browser.screenshot(directory / f"pod-{name}.png")
    browser.run("document.querySelector('[aria-label=Containers]').scrollIntoView()")
    browser.screenshot(directory / f"pod-below-{name}.png")
    browser.click("button", "Change")
    browser.type("[name=' limits memory']", "512Mi")
    browser.screenshot(directory / f"change-{name}.png")
    browser.click("dialog button:not([aria-disabled])", "Show the plan")
    browser.wait("document.querySelector('dialog .plan li')")
    browser.screenshot(directory / f"plan-{name}.png")
    browser.press("Escape")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
