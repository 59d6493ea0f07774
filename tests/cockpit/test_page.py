"""The page in a real Cockpit and a real browser, against the real podslice, systemd and kernel.

The tests run in the order of this file: those with `page` as root in one machine, then those with
`limited` in another one as a user, who becomes an administrator; the last one removes `podslice` there.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.cockpit.browser import TIMEOUT_SEC
from tests.cockpit.host import (
    MANIFESTS,
    PASSWORD,
    USER,
    WEB,
    WEB_SLICE,
    log_in,
    report,
    status,
)
from tests.packaging.installed import AGENT

BAD = "<img src=x onerror=document.title='hit'>\u202egnp."
ROWS = "[...document.querySelectorAll('.tree tbody tr')]"
DIALOG = "document.querySelector('dialog')"
CPU_USE = """Number(document.querySelector("[aria-label='CPU of %s']")?.ariaValueNow)"""
RUN = ("run", "-c", "app", "--detach")
BUSY_SERVICE = "podslice-podweb.default-app.service"
SUM_OF_NAMES = """(() => {
  const rows = [...document.querySelectorAll('.tree tbody tr')];
  return rows.map(row => [Number(row.ariaLevel), row.querySelector('bdi').textContent]);
})()"""


@pytest.fixture(scope="module")
def root_page(browser):
    """The page, as root, of which nothing was blocked and in which nothing was thrown."""
    log_in(browser, "root")
    yield browser
    assert blocked_or_thrown(browser) == []


@pytest.fixture
def page(root_page):
    """The overview, for root."""
    return overview(root_page)


@pytest.fixture(scope="module")
def limited_page(unified_browser):
    """The page of the other machine, as a user who cannot become root."""
    log_in(unified_browser, USER)
    yield unified_browser
    assert blocked_or_thrown(unified_browser) == []


@pytest.fixture
def limited(limited_page):
    """The overview, for a user."""
    return overview(limited_page)


@pytest.fixture(scope="module")
def asleep(unified):
    """A process that sleeps in the idle pod of the other machine."""
    unified.podslice(*RUN, "idle", "--", "sleep", "1000")


def blocked_or_thrown(browser):
    """Return violations of the content security policy, and exceptions of the page."""
    return [
        each
        for each in browser.messages
        if "Content Security Policy" in each
        or (each.startswith(("exception", "security")) and "podslice" in each)
    ]


def overview(browser):
    """Show the overview."""
    set_hash(browser, "#/")
    browser.wait("document.querySelector('.tree')")
    return browser


def set_hash(browser, value):
    browser.run(f"window.location.hash = {json.dumps(value)}")


def refresh(browser):
    """Have the page read what exists, as when its tab is shown again; it does so every 10 s, too."""
    browser.run("document.dispatchEvent(new window.Event('visibilitychange'))")


def kernel_limit(machine, unit=WEB_SLICE):
    """Return the memory limit that the kernel has for a pod."""
    script = f"""
group=$(systemctl show -P ControlGroup {unit})
cat /sys/fs/cgroup$group/memory.max /sys/fs/cgroup/memory$group/memory.limit_in_bytes 2>/dev/null
"""
    return int(machine.run("sh", "-c", script, check=False).stdout)


def test_the_tree_is_that_of_status(page, machine):
    units = status(machine)["units"]
    expected = []
    groups = {}
    for unit in units:
        group = unit["control_group"]
        level = groups[group] = groups.get(group.rpartition("/")[0], 0) + 1
        expected.append([level, unit.get("container") or unit["pod"] or unit["name"]])
    assert page.wait(SUM_OF_NAMES) == [
        each for each in expected if each[1] not in ("app", "worker")
    ]
    page.click("[aria-label='Open default/web']")
    assert page.wait(f"{ROWS}.length === {len(expected)} && {SUM_OF_NAMES}") == expected
    page.wait_text("use from podslice top")
    # the use of the pod is that which podslice top measures
    page.wait(f"{ROWS}.some(row => /B \\/ 128 MiB/.test(row.innerText))")
    page.type("[type=search]", "nothing of this name")
    page.wait_text("0 of 1 pod")
    page.type("[type=search]", "")


def test_drift_appears_and_its_button_repairs_it(page, machine):
    machine.run("systemctl", "set-property", "--runtime", "kubepods-burstable.slice", "CPUWeight=5")
    refresh(page)
    page.wait_text("CPUWeight is 5, should be 50")
    page.click(".problems button", "apply")
    page.wait_text("Run podslice apply?")
    # the plan, before anything is done
    page.wait(f"{DIALOG}.innerText.includes('CPUWeight 5 → 50')")
    assert not status(machine)["in_sync"]
    page.press("Escape")
    page.wait(f"!{DIALOG}")
    assert page.run("return document.activeElement.innerText.startsWith('apply')")
    page.press("Enter")
    page.click("dialog button:not([aria-disabled])", "Run")
    page.wait(f"{DIALOG}.innerText.includes('set CPUWeight=50 (was 5)')")
    page.click("dialog button:not([aria-disabled])", "Close")
    page.wait("!document.body.innerText.includes('CPUWeight is 5')")
    assert status(machine)["in_sync"]


def test_a_changed_limit_is_in_the_kernel(page, machine):
    owner = ("stat", "-c", "%U:%G %a", f"{MANIFESTS}/web.yaml")
    machine.run("chmod", "664", f"{MANIFESTS}/web.yaml")
    page.click("a", "default/web")
    page.wait("document.querySelector('[aria-label=Values]')")
    page.wait_text("spec.resources.limits.memory 128Mi")
    page.click("button", "Change")
    page.type("[name=' limits memory']", "1")
    page.click("dialog button:not([aria-disabled])", "Show the plan")
    # below the request: podslice refuses it
    page.wait_text("This cannot be applied")
    page.type("[name=' limits memory']", "160Mi")
    page.type("[name=' limits cpu']", "1500m")
    page.click("dialog button:not([aria-disabled])", "Show the plan")
    page.wait(f"{DIALOG}.innerText.includes('MemoryMax 128 MiB → 160 MiB')")
    shown = page.run(f"return {DIALOG}.querySelector('.difference').innerText")
    assert "-      memory: 128Mi     # above" in shown
    assert "+      memory: 160Mi     # above" in shown
    assert kernel_limit(machine) == 128 << 20
    page.click("dialog button:not([aria-disabled])", "Write and apply")
    page.wait(f"{DIALOG}.innerText.includes('2 done') || {DIALOG}.innerText.includes('1 done')")
    page.click("dialog button:not([aria-disabled])", "Close")
    page.wait_text("spec.resources.limits.memory 160Mi")
    assert kernel_limit(machine) == 160 << 20
    text = machine.get(f"{MANIFESTS}/web.yaml").decode()
    assert text == WEB.replace("128Mi", "160Mi").replace(
        "    limits:\n", "    limits:\n      cpu: 1500m\n"
    )
    assert machine.run(*owner).stdout == "root:podslice-admin 664\n"


def test_markup_in_texts_of_users_is_text(page, machine):
    program = f"/root/{BAD.replace('/', '')}"
    # the shell remains, so that the name of the process is that of the program
    machine.put(program, f'#!/bin/sh\necho "{BAD}"\nsleep 1000 & wait\n', mode=0o755)
    machine.podslice("run", "web", "-c", "app", "--detach", "--", program)
    web = machine.get(f"{MANIFESTS}/web.yaml").decode()
    machine.put(f"{MANIFESTS}/web.yaml", web.replace("above this", BAD))
    set_hash(page, "#/pod/default/web")
    for shown in ("figure .command", "[aria-label=Events]"):
        page.wait(f"document.querySelector('{shown}')?.innerText.includes('<img src=x')")
    page.click(".actions button", "Change")
    page.type("[name=' limits memory']", "192Mi")
    page.click("dialog button:not([aria-disabled])", "Show the plan")
    page.wait(f"{DIALOG}.querySelector('.difference')?.innerText.includes('<img src=x')")
    page.press("Escape")
    page.click(".actions button", "Delete")
    page.wait(f"{DIALOG}.innerText.includes('<img src=x')")
    page.press("Escape")
    # podslice refuses the image, and quotes it
    refused = WEB.replace("- name: app", f'- name: app\n    image: "{BAD}"')
    machine.put(f"{MANIFESTS}/{BAD}.yaml", refused.replace("web", "refused"))
    overview(page)
    refresh(page)
    page.wait("document.querySelector('.problems').innerText.split('<img src=x').length >= 3")
    assert page.run("return document.querySelectorAll('main img').length") == 0
    assert page.run("return document.title") == "Pods"
    machine.run("rm", f"{MANIFESTS}/{BAD}.yaml")


def test_the_agent_is_asked_for_the_use(page, machine):
    machine.run("systemctl", "start", AGENT)
    refresh(page)
    page.wait_text("use from the agent")
    page.wait(f"{ROWS}.some(row => /B \\/ \\d+ MiB/.test(row.innerText))")
    machine.run("systemctl", "stop", AGENT)
    refresh(page)
    page.wait_text("use from podslice top")


def test_an_evicted_pod_is_readmitted_and_applied(page, machine):
    code = """
import subprocess
from pathlib import Path
from podslice.model.node_state import Eviction
from podslice.store.store import Store
store = Store(Path("/run/podslice"))
(pod,) = store.load().pods
digest = store.digest(pod)
subprocess.run(["podslice", "delete", "web", "--grace-period", "1"], check=True)
mark = {"pod": pod.key, "uid": pod.uid, "digest": digest, "signal": "", "message": "x"}
store.mark_evicted(Eviction(**mark, at_usec=1))
"""
    machine.run("python3", "-c", code)
    refresh(page)
    page.click(".problems button", "readmit")
    page.wait_text("Run podslice readmit?")
    page.click("dialog button:not([aria-disabled])", "Run")
    page.wait(f"{DIALOG}.innerText.includes('is readmitted')")
    page.click("dialog button:not([aria-disabled])", "Close")
    page.wait_text("to apply it: podslice apply -f")
    page.click(".problems button", "apply")
    page.wait(f"{DIALOG}.innerText.includes('start {WEB_SLICE}')")
    page.click("dialog button:not([aria-disabled])", "Run")
    page.wait(f"{DIALOG}.innerText.includes('started {WEB_SLICE}')")
    page.click("dialog button:not([aria-disabled])", "Close")
    page.wait("document.querySelector('.row-pod')?.innerText.includes('running 0/2')")


@pytest.mark.usefixtures("asleep")
def test_the_use_of_the_cpu_is_that_of_top(limited, unified):
    unified.podslice(*RUN, "web", "--", "sh", "-c", "while :; do :; done")
    limited.wait(f"{CPU_USE % 'default/web'} > 0")
    # both measure two seconds, but not the same: they agree once the other load is steady
    deadline = time.monotonic() + TIMEOUT_SEC
    while True:
        found = report(unified, "top", "--interval", "2s")["pods"]
        measured = {each["pod"]: each["cpu_milli"] for each in found}
        shown = {pod: limited.run(f"return {CPU_USE % pod}") for pod in measured}
        busy, other = shown["default/web"], measured["default/web"]
        nothing = max(shown["default/idle"], measured["default/idle"])
        if nothing <= 10 < busy and abs(busy - other) <= other / 2:
            break
        assert time.monotonic() < deadline, (shown, measured)
    idle = limited.run(f"return {ROWS}.find(row => /idle/.test(row.innerText)).innerText")
    assert "0.00" in idle
    unified.run("systemctl", "kill", "--signal=KILL", BUSY_SERVICE)


def test_a_user_sees_and_may_not_change(limited):
    page = limited
    page.click("a", "default/web")
    page.wait("document.querySelector('[aria-label=Values]')")
    for text in ("Change", "Delete"):
        page.click(".actions button", text)
        found = (
            f"[...document.querySelectorAll('.actions button')].find(e => e.innerText === '{text}')"
        )
        assert "administrative access" in page.run(f"return {found}.title")
    assert page.run(f"return !{DIALOG}")


@pytest.mark.usefixtures("asleep")
def test_a_user_becomes_administrator_and_deletes_a_pod(limited, unified):
    page = limited
    unified.put(f"/etc/sudoers.d/{USER}", f"{USER} ALL=(ALL) ALL\n", mode=0o440)
    page.in_shell(
        "[...document.querySelectorAll('button')].find(e => /Limited access/.test(e.innerText)).click()"
    )
    page.in_shell("document.querySelector('input[type=password]').focus()", waits=True)
    page.call("Input.insertText", text=PASSWORD)
    page.press("Enter")
    page.in_shell("if (!/Administrative access/.test(document.body.innerText)) throw 0", waits=True)
    set_hash(page, "#/pod/default/idle")
    page.wait("document.querySelector('.actions button')?.ariaDisabled === null")
    page.click(".actions button", "Delete")
    page.wait(f"{DIALOG}.innerText.includes('sleep')")
    page.click("dialog input[type=checkbox]")
    page.wait(f"{DIALOG}.innerText.includes('podslice delete --forget default/idle')")
    page.click("dialog button:not([aria-disabled])", "Run")
    page.wait(f"{DIALOG}.innerText.includes('Done')")
    page.click("dialog button:not([aria-disabled])", "Close")
    left = {each["pod"] for each in status(unified)["units"]}
    assert "default/idle" not in left
    assert unified.run("ls", MANIFESTS).stdout == "web.yaml\n"


def test_what_is_missing_is_shown(limited_page, unified):
    page = limited_page
    unified.put(
        "/usr/local/bin/podslice", "#!/bin/sh\necho 'error: no bus' >&2; exit 1\n", mode=0o755
    )
    page.run("window.location.reload()")
    page.wait_text("podslice does not answer")
    page.wait_text("error: no bus")
    unified.run("rm", "/usr/local/bin/podslice", "/usr/bin/podslice")
    page.run("window.location.reload()")
    page.wait_text("podslice is not installed")
    assert page.run("return !document.body.innerText.includes('error: no bus')")
