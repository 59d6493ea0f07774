"""The modules of the page that need no browser, by the test runner of Node.js."""

import subprocess
from pathlib import Path

from tests.lab import deps, fixtures

TESTS = Path(__file__).with_name("modules.test.js")


def test_modules():
    fixtures.need_lab()
    deps.ensure_commands({"node": "nodejs"})
    done = subprocess.run(
        ["/usr/bin/env", "node", "--test", "--test-reporter=tap", TESTS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
