"""Print what a web server answers; in a machine, `python3 -m tests.host.fetch URL`."""

import sys
import urllib.request

if __name__ == "__main__":
    with urllib.request.urlopen(sys.argv[1], timeout=30) as answer:  # noqa: S310 - of a test
        sys.stdout.write(answer.read().decode())
