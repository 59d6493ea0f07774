"""Invented processes as files of /proc."""

DELEGATED = "/user.slice/user-1000.slice/user@1000.service/app.slice"


def hostile_groups(pod):
    """Return groups that a user creates in a delegated one, to look as if they were in a pod's."""
    lines = ("\f", "\v", "\r", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
    return [
        *(f"{DELEGATED}/x{character}0::{pod}" for character in lines),
        *(f"{DELEGATED}/x{character}1:name=systemd:{pod}" for character in lines),
        f"{DELEGATED}/y\fz",
        f"{DELEGATED}/0::{pod}",
        f"{DELEGATED}/:0:{pod}",
        f"{DELEGATED}/\udcff{pod}",
        f"{DELEGATED}{pod}",
        f"{DELEGATED}{pod} (deleted)",
        f"/../..{DELEGATED}/..{pod}",
        f"/..{pod}",
    ]


def processes(*rows):
    """Return files of /proc: path → text. A row has `pid` and the fields that differ from defaults."""
    files = {}
    for row in rows:
        files |= _process(**row)
    return files


def _process(
    pid,
    *,
    name="sleep",
    parent=1,
    group="/user.slice/session.scope",
    state="S",
    flags=0x400000,
    leader=None,
    uid=0,
):
    started = 100 + pid
    rest = f"{state} {parent} {pid} {pid} 0 -1 {flags} {'0 ' * 12}{started} 0 0"
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
    place = f"proc/{pid}"
    return {
        f"{place}/stat": f"{pid} ({name}) {rest}\n",
        f"{place}/comm": f"{name}\n",
        f"{place}/cgroup": f"3:memory:/x\n0::{group}\n",
        f"{place}/status": f"Name:\t{escaped}\nTgid:\t{leader or pid}\nUid:\t{uid}\t0\t0\t0\n",
        f"{place}/oom_score_adj": "0",
        f"{place}/task/{pid}/children": "",
    }
