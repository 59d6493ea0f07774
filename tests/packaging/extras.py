"""Distribution packages that only these tests need, in a machine that has no network of its own."""

from pathlib import Path

from tests.lab import deps
from tests.lab.image import ensure_dir, ensure_image, make_key
from tests.lab.machine import Machine
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def boot_with(suite: str, *packages: str, bind: dict[str, Path] | None = None) -> Machine:
    """A namespace with the source tree at /src, and packages of its release installed."""
    debs = {"/debs": _fetch(suite, packages)} if packages else {}
    machine = Namespace(suite, bind={"/src": source_dir(), **debs, **(bind or {})})
    try:
        if packages:
            install = "dpkg --install --force-unsafe-io /debs/*.deb"
            machine.run("sh", "-c", install, env={"DEBIAN_FRONTEND": "noninteractive"})
    except BaseException:
        machine.close()
        raise
    return machine


def _fetch(suite: str, packages: tuple[str, ...]) -> Path:
    """The packages and what they need beside the image's own; from the cache when it has them."""
    image = ensure_image(suite)
    key = make_key(image.dir.name, Path(__file__), *packages)
    made = ensure_dir(
        "extras",
        f"{suite}-{'-'.join(packages)}",
        key,
        lambda new: _download(suite, packages, image.root / "var/lib/dpkg/status", new),
    )
    return made / "debs"


def _download(suite: str, packages: tuple[str, ...], status: Path, new: Path) -> None:
    deps.ensure_deps()
    state = new / "apt"
    for name in ("lists/partial", "archives/partial", "empty"):
        (state / name).mkdir(parents=True)
    (state / "status").write_bytes(status.read_bytes())
    (state / "sources.list").write_text(
        f"deb [signed-by={KEYRING}] {deps.debian_mirror()} {suite} main\n"
    )
    settings = {
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": state / "empty",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": state / "empty",
        "Dir::State::Lists": state / "lists",
        "Dir::State::Status": state / "status",
        "Dir::State::Extended_States": state / "extended_states",
        "Dir::Cache": state,
        "Dir::Cache::Archives": state / "archives",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Check-Valid-Until": "false",
    }
    apt = ("apt-get", "--quiet", *(f"--option={key}={value}" for key, value in settings.items()))
    deps.run_tool(*apt, "update")
    deps.run_tool(*apt, "install", "--yes", "--download-only", *packages)
    (new / "debs").mkdir()
    for deb in (state / "archives").glob("*.deb"):
        deb.rename(new / "debs" / deb.name)
    deps.run_tool("rm", "-r", str(state))
