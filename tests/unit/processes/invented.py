"""Processes that are not there, as /proc would show them."""


def processes(*rows):
    """Files below a root: path → text. A row has `pid`, and what else is not as usual."""
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
        f"{place}/cgroup": f"0::{group}\n",
        f"{place}/status": f"Name:\t{escaped}\nTgid:\t{leader or pid}\nUid:\t{uid}\t0\t0\t0\n",
        f"{place}/oom_score_adj": "0",
        f"{place}/task/{pid}/children": "",
    }
