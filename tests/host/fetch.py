"""Print what a web server answers, each with the time, as JSON; in a machine, `python3 -m tests.host.fetch URL...`."""

import json
import sys
import time
import urllib.request

if __name__ == "__main__":
    answers = []
    for url in sys.argv[1:]:
        with urllib.request.urlopen(url, timeout=300) as answer:  # noqa: S310 - of a test
            answers.append((time.time(), answer.read().decode()))
    json.dump(answers, sys.stdout)
