"""The modules of the agent's process, which stay in memory as long as it runs."""

import subprocess
import sys

import pytest

IMPORT = """
import sys
from podslice.imports import never_import_openssl
never_import_openssl()
import podslice.agent.daemon, podslice.cli.verbs.agent
print(*(name for name, module in sys.modules.items() if module is not None))
"""
UNUSED = {"ssl", "_ssl", "_hashlib", "http.client", "http.server", "urllib.request"}


@pytest.mark.usefixtures("allow_effects")  # this process has imported more than the agent
def test_the_agent_imports_neither_tls_nor_another_http_server():
    modules = subprocess.check_output([sys.executable, "-c", IMPORT], text=True).split()
    assert "podslice.agent.endpoints.metrics" in modules
    assert not UNUSED & set(modules)
