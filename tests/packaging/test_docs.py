"""Manual pages and completions: generated from the code, complete, and accepted by their readers."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from podslice.cli.app import command_of, run
from podslice.cli.verb_table import VERBS
from podslice.features.history import prometheus as prometheus_history
from podslice.features.history import recommendation
from podslice.features.history import recorder as usage_recorder
from podslice.features.history import samples as usage_samples
from podslice.features.history.model import UsageHistory
from podslice.features.history.samples import add_oom_kills
from podslice.inputs.options.table import OPTIONS
from podslice.model.config import Config
from podslice.model.event import Kind, Level
from podslice.model.feature import VerbGroup
from podslice.store.store import Store
from tests.lab import fixtures
from tests.packaging.extras import boot_with
from tests.unit.builders import container, pod

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {
    VerbGroup.WRITE: "man1/podslice-manifests.1",
    VerbGroup.AHEAD: "man1/podslice-preview.1",
    VerbGroup.PODS: "man1/podslice-pods.1",
    VerbGroup.PROCESSES: "man1/podslice-processes.1",
    VerbGroup.HOST: "man1/podslice-host.1",
    VerbGroup.KUBELET: "man7/podslice-kubelet.7",
}
"""The page of each group of verbs."""
ELSEWHERE = {"agent": "man8/podslice-agent.8", "confirm": GROUPS[VerbGroup.HOST]}
MAIN, OPTIONS_PAGE = "man1/podslice.1", "man5/podslice.toml.5"
AGENT, POLICY = "man8/podslice-agent.8", "man7/podslice-policy.7"
PAGES = (MAIN, *GROUPS.values(), OPTIONS_PAGE, AGENT, POLICY, "man7/podslice-quadlet.7")
LINES_MAX = 500
"""Of podslice(1) and the page of each group, at 80 columns."""
EPOCH = "1700000000"
COMPLETION = {
    "bash": "share/bash-completion/completions/podslice",
    "zsh": "share/zsh/vendor-completions/_podslice",
    "fish": "share/fish/vendor_completions.d/podslice.fish",
}
sys.path.insert(0, str(ROOT / "packaging"))
from docs import manual  # noqa: E402 - after the path

SHOWN = {name: row for name, row in VERBS.items() if row.group is not VerbGroup.INTERNAL}
IN_HELP = sorted(name for name, row in SHOWN.items() if not row.is_hidden and " " not in name)


def generate(prefix):
    subprocess.run(
        [
            *(sys.executable, str(ROOT / "packaging/generate.py"), str(prefix)),
            "--zsh-directory=share/zsh/vendor-completions",
        ],
        check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
    )
    return contents(prefix)


def contents(prefix):
    return {
        path.relative_to(prefix): path.read_bytes() for path in prefix.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The prefix with all generated files."""
    prefix = tmp_path_factory.mktemp("made")
    generate(prefix)
    return prefix


@pytest.fixture(scope="module")
def text(made):
    """Return a manual page as text, without roff's escapes."""

    def read(name):
        page = (made / "share/man" / name).read_text()
        page = re.sub(r"\\f[BIR]|\\&|\\:", "", page).replace("\\-", "-").replace("\\(dq", '"')
        return re.sub(r"\\\[u([0-9A-F]{4})\]", lambda m: chr(int(m[1], 16)), page)

    return read


def section(page, heading):
    return page.partition(f'"{heading}"\n')[2].partition("\n.S")[0]


def flags(text):
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text))


def page_of(verb):
    return ELSEWHERE.get(verb) or GROUPS[VERBS[verb].group]


def flags_of(verb):
    command = command_of(*verb.split())
    return {
        flag for each in command.params if not each.hidden for flag in each.opts if flag[0] == "-"
    }


# content


def test_two_runs_give_the_same_bytes(made, tmp_path):
    again = generate(tmp_path)
    assert again == contents(made)
    wanted = {*(f"share/man/{page}" for page in PAGES), *COMPLETION.values()}
    assert {str(path) for path in again} == wanted


@pytest.mark.parametrize("name", SHOWN)
def test_every_option_is_in_the_manual(name, text):
    own = section(text(page_of(name)), f"podslice {name}")
    assert SHOWN[name].summary in own
    shared = section(text(MAIN), "OPTIONS")
    keys = section(text(GROUPS[VerbGroup.AHEAD]), "CONFIGURATION OPTIONS")
    assert flags_of(name) <= flags(own + shared + keys)
    # and the manual documents no others
    assert flags("\n".join(re.findall(r"^\.T[PQ]\n(-.*)$", own, re.MULTILINE))) <= flags_of(name)


@pytest.mark.parametrize("name", SHOWN)
def test_every_verb_is_in_podslice_1_below_its_page(name, text):
    groups = text(MAIN).partition('"VERBS"\n')[2].partition("\n.SH")[0]
    _, _, rest = groups.partition(f'.SS "{VERBS[name].group}: ')
    heading, _, listed = rest.partition("\n")
    page, _, number = Path(GROUPS[VERBS[name].group]).name.rpartition(".")
    assert heading == f'{page}({number})"'
    assert f".TP\n{name}\n" in listed.partition("\n.SS")[0]


def test_help_and_manual_begin_like_the_readme(text, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    paragraphs = (ROOT / "README.md").read_text().split("\n\n")
    assert paragraphs[1] in " ".join(section(text(MAIN), "DESCRIPTION").split())
    assert run(["--help"]) == 0
    assert paragraphs[1] in " ".join(capsys.readouterr().out.split())


def test_the_constants_of_recommendations_are_those_of_the_code():
    page = (ROOT / "packaging/man/podslice-policy.7.md").read_text()
    rows = page.partition("## Constants\n")[2].partition("\n## ")[0]
    found = dict(re.findall(r"^\| ([^|]*) \| ([^|]*) \|.*\|$", rows, re.MULTILINE))
    del found["constant"]
    cpu, memory = usage_samples.CPU_BUCKETS, usage_samples.MEMORY_BUCKETS
    killed = [
        add_oom_kills(UsageHistory(), 1, 1, request_bytes=size).memory.oom_bytes - size
        for size in (0, 10**12)
    ]
    request, lower, upper = (f"{share * 100:.0f}" for share in recommendation._REQUEST)
    half_life = f"{usage_samples.HALF_LIFE_SEC // 3600} hours"
    assert found == {
        "time between samples": f"{usage_recorder.SAMPLE_SEC / 60:.0f} minute",
        "first bucket, CPU": f"{cpu.first_width / 1000} CPUs",
        "last bucket, CPU": f"{cpu.maximum / 1000:.0f} CPUs",
        "first bucket, memory": f"{memory.first_width / 1e6:.0f} MB",
        "last bucket, memory": f"{memory.maximum / 1e12:.0f} TB",
        "growth of buckets": f"{cpu.growth - 1:.0%}",
        "half-life of the CPU": half_life,
        "half-life of memory": half_life,
        "window of a memory peak": f"{usage_samples.WINDOW_SEC // 3600} hours",
        "windows that count": f"{usage_samples.KEPT_SEC // usage_samples.WINDOW_SEC}",
        "weight of a CPU sample": f"{usage_samples.CPU_WEIGHT}",
        "weight of a memory peak": f"{usage_samples.PEAK_WEIGHT:.0f}",
        "factor after an OOM kill": f"{1 + killed[1] / 10**12}",
        "least increase by it": f"{killed[0] // 2**20} MiB",
        "percentile of requests": request,
        "percentile of lower bounds": lower,
        "percentile of upper bounds": upper,
        "margin": f"{recommendation.MARGIN - 1:.0%}",
        "confidence of upper bounds": "{:.0f}, exponent {}".format(
            *recommendation._UPPER_CONFIDENCE
        ),
        "confidence of lower bounds": "{}, exponent {}".format(*recommendation._LOWER_CONFIDENCE),
        "memory pressure, veto": f"{recommendation._MEMORY_WAIT_SHARE:.1%}",
        "CPU pressure, veto": f"{recommendation._CPU_WAIT_SHARE:.0%}",
        "percentile of reserved CPU": f"{recommendation._PERCENTILE * 100:.0f}",
        "step of values from Prometheus": f"{prometheus_history.STEP_SEC // 60} minutes",
    }
    assert memory.growth == cpu.growth


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.key)
def test_every_option_is_in_its_manual_with_its_default(row, text):
    page = " ".join(text(OPTIONS_PAGE).split())
    assert f".TP {row.key} = " in page
    assert " ".join(row.help.split()) in page
    if row.field is None:
        return
    default = manual.default_text(row)
    assert f"The default is {default or 'nothing'}." in page
    assert row.read(default) == getattr(Config(), row.field)


def test_every_event_is_in_the_manual_of_the_agent_with_its_priority(text):
    words = {Level.ERROR: "err", Level.WARNING: "warning", Level.NOTICE: "notice"}
    listed = re.findall(r"^([a-z]+(?:-[a-z]+)+)\t([a-z]+)\t", text(AGENT), re.MULTILINE)
    assert listed == [(kind.label, words.get(kind.level, "info")) for kind in Kind]


def test_every_formula_of_the_policy_is_in_its_manual():
    template = (ROOT / "packaging/man/podslice-policy.7.md").read_text()
    named = {
        tuple(line.split()[1:])
        for line in template.splitlines()
        if line.startswith(("@source ", "@cite "))
    }
    assert sourced() - named == set()
    assert len(named) > 30


def sourced():
    """Return the functions of the policy with a source, as the template names them."""
    found = set()
    for path in (ROOT / "podslice/policy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and "Source: " in (
                ast.get_docstring(node) or ""
            ):
                module = path.relative_to(ROOT / "podslice").with_suffix("")
                found.add((".".join(module.parts), node.name))
    return found


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("@verb check", "has no @verb apply"),
        ("@option rules", "has no @option admission"),
        ("@verb bogus", "@verb bogus: KeyError"),
        ("@source policy.convert nothing", "AttributeError"),
        ("@source policy.convert weight_from_shares", "has no source"),
        ("@nonsense", "KeyError"),
    ],
)
def test_a_template_that_does_not_match_the_code_is_refused(tmp_path, line, error):
    (tmp_path / "podslice.1.md").write_text(f"# NAME\n\n{line}\n")
    with pytest.raises(manual.TemplateError, match=re.escape(error)):
        manual.pages(tmp_path)


# bash

ASK = """\
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_podslice_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def complete(made, tmp_path):
    """Return what bash offers for a command line; with two applied pods of the user."""
    program = tmp_path / "podslice"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m podslice "$@"\n')
    program.chmod(0o755)
    store = Store(tmp_path / "podslice.d/podslice")
    for namespace, name in (("default", "web"), ("shop", "db")):
        store.save(pod(name, namespace=namespace, containers=(container("app"),)))

    def ask(*words):
        script = ("bash", "--norc", "-c", ASK, "ask", str(made / COMPLETION["bash"]))
        done = subprocess.run(
            [*script, str(program), *words],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(ROOT),
                "XDG_RUNTIME_DIR": str(tmp_path / "podslice.d"),
            },
        )
        assert done.stderr == ""
        return sorted(done.stdout.split())

    return ask


def test_bash_completes_verbs(complete):
    assert complete("") == IN_HELP
    assert complete("de") == ["delete"]
    assert complete("node", "") == ["init", "recommend", "reset"]


@pytest.mark.parametrize("name", ["apply", "agent", "node init", "plan"])
def test_bash_completes_every_option(complete, name):
    assert set(complete(*name.split(), "-")) == {*flags_of(name), "-h", "--help"}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["top", "--sort", "t"], ["throttled"]),
        (["cgroup-parent", "-o", "po"], ["podman", "podman-pod"]),
        # the shell completes files where podslice offers nothing
        (["apply", "-f", "examples/se"], []),
        (["plan", "--kube-reserved", ""], []),
    ],
)
def test_bash_completes_values(complete, words, offered):
    assert complete(*words) == offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["delete", "--user", ""], ["shop/db", "web"]),
        (["delete", "--user", "-n", "shop", ""], ["db", "default/web"]),
        (["delete", "--user", "w"], ["web"]),
        (["explain", "-f", "examples/seeds", "my"], ["myide"]),
        (["explain", "-f", "nowhere.yaml", ""], []),
        (["run", "--user", "web", "-c", ""], ["app"]),
        (["status", "--user", "-n", "s"], ["shop"]),
    ],
)
def test_bash_completes_pods_containers_and_namespaces(complete, words, offered):
    assert complete(*words) == offered


# readers of the files


@pytest.fixture(scope="module")
def reader(made):
    """A machine with man, mandoc, zsh and fish, and all files installed."""
    fixtures.need_lab()
    with boot_with(
        "trixie", "man-db", "mandoc", "zsh", "fish", bind={"/made": made.resolve()}
    ) as machine:
        machine.run("cp", "-r", "/made/share", "/usr/")
        machine.put(
            "/usr/bin/podslice", '#!/bin/sh\nPYTHONPATH=/src exec python3 -m podslice "$@"\n', 0o755
        )
        yield machine


def test_the_libraries_of_the_distribution_generate_the_same(reader):
    reader.run(
        *("python3", "/src/packaging/generate.py", "/tmp/made"),
        "--zsh-directory=share/zsh/vendor-completions",
        env={"SOURCE_DATE_EPOCH": EPOCH},
    )
    compared = reader.run("diff", "-r", "/made", "/tmp/made", check=False)
    assert (compared.exit_code, compared.stdout) == (0, "")


@pytest.mark.parametrize("page", PAGES)
def test_man_and_mandoc_report_nothing(reader, page):
    path = f"/usr/share/man/{page}"
    assert reader.run("mandoc", "-T", "lint", "-W", "style", path, check=False).stdout == ""
    shown = reader.run("man", "--warnings", "-l", path, env={"MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
    assert shown.stderr == ""
    lines = shown.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    if page in (MAIN, *GROUPS.values()):
        assert len(lines) <= LINES_MAX


def test_manual_pages_are_found_by_their_names(reader):
    for page in PAGES:
        name, _, number = Path(page).name.rpartition(".")
        assert reader.run("man", "-w", number, name).stdout.strip() == f"/usr/share/man/{page}"


def test_the_documentation_of_units_exists(reader):
    named = {
        match
        for pattern in ("*.service", "*.slice", "*.socket")
        for path in (ROOT / "units").glob(pattern)
        for match in re.findall(r"man:([\w.@-]+)\((\d)\)", path.read_text())
    }
    assert named
    for name, number in named:
        reader.run("man", "-w", number, name)


@pytest.mark.parametrize("shell", COMPLETION)
def test_the_shells_can_read_their_completions(reader, shell):
    done = reader.run(shell, "-n", f"/usr/{COMPLETION[shell]}", check=False)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


def fish(machine, line):
    done = machine.run("fish", "-c", f"complete -C {line!r}", env={"PATH": "/usr/bin:/bin"})
    assert done.stderr == ""
    return [offer.partition("\t")[0] for offer in done.stdout.splitlines()]


def test_fish_completes(reader):
    assert fish(reader, "podslice ") == IN_HELP
    assert fish(reader, "podslice node i") == ["init"]
    assert fish(reader, "podslice top --sort t") == ["throttled"]
    assert {"--all", "--grace-period"} <= set(fish(reader, "podslice delete --"))
    assert fish(reader, "podslice explain -f /src/examples/seeds my") == ["myide"]


# zsh completes only at a terminal: Ctrl-D lists, and Ctrl-T, handled after it, marks the end
ZSH = r"""
import os, pty, re, sys

SETUP = (
    "PROMPT='<<prompt>>'; autoload -U compinit; compinit -u -D; LISTMAX=999;"
    " zstyle ':completion:*' verbose no; mark() { print -n '<<listed>>' }; zle -N mark;"
    " bindkey '^T' mark; print '<<re''ady>>'\n"
)
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm", COLUMNS="300")
    os.execvp("zsh", ["zsh", "-f", "-i"])

def read_until(pattern):
    seen = ""
    while not (found := re.search(pattern, seen, re.DOTALL)):
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen[:found.start()]

os.write(terminal, SETUP.encode())
read_until("<<ready>>.*<<prompt>>")
os.write(terminal, (sys.argv[1] + "\x04\x14").encode())
shown = re.sub(r"\x1b[\[(][0-9;?]*[A-Za-z]|[\x00-\x1f]", "\n", read_until("<<listed>>"))
# the line is echoed before the list and redrawn after it
lines = [line for line in shown.split("\n") if line.strip()]
print(" ".join(line for line in lines if line.strip() != sys.argv[1].strip() and len(line) > 1))
os.kill(pid, 9)
"""


def zsh(machine, line):
    done = machine.run("python3", "-c", ZSH, line, timeout_sec=30)
    return sorted(done.stdout.split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("podslice ", IN_HELP),
        ("podslice node ", ["init", "recommend", "reset"]),
        ("podslice delete --us", ["--user"]),
        ("podslice top --sort t", ["throttled"]),
        ("podslice explain -f /src/examples/seeds pod", [f"pod{n}" for n in range(1, 6)]),
    ],
)
def test_zsh_completes(reader, line, offered):
    assert zsh(reader, line) == offered
