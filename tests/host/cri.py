"""Start pods and containers by the container runtime interface, as a kubelet does; runs in a machine.

`python3 cri.py DIRECTORY IMAGE SNAPSHOTTER PODS` makes an image of the files of DIRECTORY, starts a
sandbox for each pod of the JSON list PODS (`{"name", "parent", "containers": {NAME: RESOURCES}}`) in
the slice `parent`, starts its containers, and prints the IDs of these as a JSON mapping by name.
RESOURCES has the fields of LinuxContainerResources. Debian has no crictl; field numbers are those of
staging/src/k8s.io/cri-api/pkg/apis/runtime/v1/api.proto.
"""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import time

import grpc

SOCKET = "unix:///run/containerd/containerd.sock"
TIMEOUT_SEC = 300
NODE = 2
"""NamespaceMode: that of the host, which needs no network configuration."""
RESOURCES = {
    "cpu_period": 1,
    "cpu_quota": 2,
    "cpu_shares": 3,
    "memory_limit_in_bytes": 4,
    "oom_score_adj": 5,
    "unified": 9,
    "memory_swap_limit_in_bytes": 10,
}


def varint(number):
    number &= 2**64 - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def message(fields):
    """Encode a message: values by field number; a list is a repeated field, a mapping a message."""
    encoded = b""
    for number, value in fields.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, int):
                encoded += varint(number << 3) + varint(each)
                continue
            part = message(each) if isinstance(each, dict) else each.encode()
            encoded += varint(number << 3 | 2) + varint(len(part)) + part
    return encoded


def first_field(answer):
    """Return the text of the first field of an answer, which is at most 127 bytes long."""
    return answer[2 : 2 + answer[1]].decode()


def resources(stated):
    fields = {RESOURCES[name]: value for name, value in stated.items()}
    unified = stated.get("unified", {})
    return {**fields, 9: [{1: name, 2: value} for name, value in unified.items()]}


def make_image(directory, image, snapshotter):
    """Import an image of one layer."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(directory, ".")
    layer = packed.getvalue()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/sleep", "1000"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    files = {
        "manifest.json": json.dumps(manifest).encode(),
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    command = ("ctr", "--namespace=k8s.io", "images", "import", f"--snapshotter={snapshotter}", "-")
    subprocess.run(command, input=archive.getvalue(), stdout=sys.stderr, check=True)


def start(call, image, pod):
    """Start a pod, and return the IDs of its containers by name."""
    name = pod["name"]
    host = {1: {1: NODE}}
    sandbox = {
        1: {1: name, 2: name, 3: "default", 4: 1},
        4: {1: "127.0.0.1"},
        8: {1: pod["parent"], 2: host},
    }
    id_ = first_field(call("RunPodSandbox", {1: sandbox}))
    started = {}
    for container, stated in pod["containers"].items():
        linux = {1: resources(stated), 2: {3: {1: NODE}}}
        config = {1: {1: container, 2: 1}, 2: {1: image}, 15: linux}
        answer = call("CreateContainer", {1: id_, 2: config, 3: sandbox})
        started[container] = first_field(answer)
        call("StartContainer", {1: started[container]})
    return started


def main():
    """Import the image, and start the pods."""
    directory, image, snapshotter, pods = sys.argv[1:]
    make_image(directory, image, snapshotter)
    channel = grpc.insecure_channel(SOCKET)

    def call(method, fields, service="RuntimeService"):
        path = f"/runtime.v1.{service}/{method}"
        return channel.unary_unary(path)(message(fields), timeout=TIMEOUT_SEC, wait_for_ready=True)

    # the plugin learns of an imported image from an event
    while not call("ImageStatus", {1: {1: image}}, "ImageService"):
        time.sleep(0.1)
    started = {}
    for each in json.loads(pods):
        started |= start(call, image, each)
    json.dump(started, sys.stdout)


if __name__ == "__main__":
    main()
