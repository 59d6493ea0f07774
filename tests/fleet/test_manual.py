"""The commands of podslice(1) for other hosts, with ssh."""

import os
import re
import subprocess
from pathlib import Path

from tests.host import agent

ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "packaging/man/podslice.1.md"


def script():
    """Return the commands of EXAMPLES that use other hosts."""
    examples = MANUAL.read_text().partition("# EXAMPLES")[2]
    blocks = re.findall(r"^```\n(.*?)^```", examples, re.DOTALL | re.MULTILINE)
    (block,) = (block for block in blocks if "ssh " in block)
    return block


def test_the_commands_for_other_hosts_work(fleet, keys, tmp_path):
    for host in fleet.values():
        host.reset()
    (tmp_path / "web.yaml").write_text(agent.manifest("web", memory="8Mi", limit="64Mi"))
    # systemctl starts ssh by its name, without options
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {keys.configuration} "$@"\n')
    ssh.chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", "-ec", script()],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{ssh.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for host in fleet.values():
        web = host.run("podslice", "cgroup-parent", "web").stdout.strip()
        assert host.show(web, "MemoryMax") == str(64 * 2**20)
    assert done.stdout.count("Active: active") == len(fleet)
