"""Stands in for NVIDIA's container runtime: runc, with the driver put into containers that ask for GPUs.

The original adds a driver's libraries and device files to a container by `NVIDIA_VISIBLE_DEVICES` in its environment;
this program does the same with the emulated driver, in both modes of the original:

- `legacy`: it knows the driver's files itself.
- `cdi`: it takes them from a CDI specification (Container Device Interface), device by device.

It knows the values that the NVIDIA container toolkit documents: nothing or `void` changes nothing, `none` brings the
driver without a GPU, `all`, and lists of UUIDs or indices. An unknown GPU fails the container's start.

It is a file of its own that imports nothing of ours: containerd runs it as root with a bare environment. Containerd
runs `PROGRAM`, which starts this file only for containers that name GPUs, as Python starts more slowly than runc.
"""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

PROGRAM = """#!/bin/sh
case " $* " in *" create "*)
  bundle=. previous=
  for word; do
    case $previous in --bundle | -b) bundle=$word ;; esac
    previous=$word
  done
  if grep -q '"NVIDIA_VISIBLE_DEVICES=' "$bundle/config.json"; then exec {python} -I -S {file} "$@"; fi
esac
exec {runc} "$@"
"""
"""The runtime as a program: `python` runs this `file`, and everything else goes to `runc`."""

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
MAJOR = 195
"""The major number of NVIDIA's device files."""
KIND = "nvidia.com/gpu"

# JSON of the OCI runtime specification and of CDI.
Json = dict[str, Any]


class UnknownGpuError(Exception):
    """The container asks for a GPU that the node does not have."""


def wanted(spec: Json) -> list[str] | None:
    """The entries of the container's `NVIDIA_VISIBLE_DEVICES`; None if it gets no driver, [] if no GPU."""
    environment = dict(one.partition("=")[::2] for one in spec["process"].get("env") or ())
    value = environment.get(VISIBLE, "")
    if value in ("", "void"):
        return None
    return [] if value == "none" else value.split(",")


def cdi_specification(driver: Path, libraries: str, uuids: list[str]) -> Json:
    """The node's GPUs as `nvidia-ctk cdi generate` would describe them.

    Args:
        driver: the directory of the driver's files: `lib` with the libraries, `node` with the node file and its book.
        libraries: the directory of libraries in containers.
        uuids: the UUID of each GPU, by index.
    """
    mounts = [
        {
            "hostPath": str(path),
            "containerPath": f"{libraries}/{path.name}",
            "options": ["ro", "bind", "nosuid"],
        }
        for path in sorted((driver / "lib").iterdir())
    ]
    book = {
        "hostPath": str(driver / "node"),
        "containerPath": "/run/plimsoll-emulator",
        "options": ["rw", "rbind", "nosuid", "nodev"],
    }
    nodes = [_node(index) for index in range(len(uuids))]
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [nodes[index]]}}
        for index, uuid in enumerate(uuids)
        for name in (str(index), uuid)
    ]
    devices.append({"name": "all", "containerEdits": {"deviceNodes": nodes}})
    return {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": devices,
        "containerEdits": {"mounts": [*mounts, book]},
    }


def _node(index: int) -> Json:
    return {"path": f"/dev/nvidia{index}", "type": "c", "major": MAJOR, "minor": index}


def edits_by_specification(cdi: Json, names: list[str]) -> Json:
    """The edits of a CDI specification for these devices, those of every container among them.

    Raises:
        UnknownGpuError: the specification has no such device.
    """
    known = {device["name"]: device["containerEdits"] for device in cdi["devices"]}
    chosen = [cdi["containerEdits"]]
    for name in names:
        if name not in known:
            raise UnknownGpuError(f"unresolvable CDI devices {KIND}={name}")
        chosen.append(known[name])
    return {
        kind: [entry for edits in chosen for entry in edits.get(kind, ())]
        for kind in ("mounts", "deviceNodes")
    }


def edits_by_driver(driver: Json, names: list[str]) -> Json:
    """The edits of the legacy mode, from the driver's own list of GPUs; see `edits_by_specification`.

    Raises:
        UnknownGpuError: the node has no such GPU.
    """
    uuids: list[str] = driver["uuids"]
    indices: list[int] = []
    for name in names:
        if name == "all":
            indices += range(len(uuids))
        elif name in uuids:
            indices.append(uuids.index(name))
        elif name.isdecimal() and int(name) < len(uuids):
            indices.append(int(name))
        else:
            raise UnknownGpuError(f"nvidia-container-cli: device error: {name}: unknown device")
    nodes = [_node(index) for index in sorted(set(indices))]
    mounts = cdi_specification(Path(driver["directory"]), driver["libraries"], uuids)["containerEdits"][
        "mounts"
    ]
    return {"mounts": mounts, "deviceNodes": nodes}


def edited(spec: Json, edits: Json) -> Json:
    """The container's specification with these mounts and device files."""
    mounts = [
        {
            "type": "bind",
            "source": one["hostPath"],
            "destination": one["containerPath"],
            "options": one["options"],
        }
        for one in edits["mounts"]
    ]
    linux = dict(spec.get("linux") or {})
    resources = dict(linux.get("resources") or {})
    present = {one["path"] for one in linux.get("devices") or ()}
    nodes = [one for one in edits["deviceNodes"] if one["path"] not in present]
    mode = stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
    linux["devices"] = [*(linux.get("devices") or ()), *({**one, "fileMode": mode} for one in nodes)]
    allowed = [
        {"allow": True, "type": "c", "major": one["major"], "minor": one["minor"], "access": "rw"}
        for one in nodes
    ]
    resources["devices"] = [*(resources.get("devices") or ()), *allowed]
    linux["resources"] = resources
    return {**spec, "mounts": [*(spec.get("mounts") or ()), *mounts], "linux": linux}


def bundle_of(arguments: list[str]) -> Path | None:
    """The bundle of a `create`; None for runc's other commands."""
    if "create" not in arguments:
        return None
    for flag in ("--bundle", "-b"):
        if flag in arguments:
            return Path(arguments[arguments.index(flag) + 1])
    return Path.cwd()


def fail(arguments: list[str], message: str) -> None:
    """End with a message where containerd looks for runc's, so that the pod's status shows it."""
    if "--log" in arguments:
        line = json.dumps({"level": "error", "msg": message})
        Path(arguments[arguments.index("--log") + 1]).write_text(f"{line}\n")
    sys.exit(message)


def edits_for(spec: Json, configuration: Json, *, by_cdi: bool) -> Json | None:
    """The edits for a container; None for one that gets no driver. Raises as `edits_by_driver` does."""
    names = wanted(spec)
    if names is None:
        return None
    if by_cdi:
        return edits_by_specification(json.loads(Path(configuration["cdi"]).read_text()), names)
    return edits_by_driver(configuration, names)


def main() -> None:
    """Change the specification of a container that is created, and become runc."""
    configuration = json.loads(Path(__file__).with_suffix(".json").read_text())
    bundle = bundle_of(sys.argv[1:])
    if bundle is not None:
        path = bundle / "config.json"
        spec = json.loads(path.read_text())
        try:
            edits = edits_for(spec, configuration, by_cdi=Path(sys.argv[0]).stem.endswith("cdi"))
        except UnknownGpuError as error:
            fail(sys.argv[1:], str(error))
        else:
            if edits is not None:
                path.write_text(json.dumps(edited(spec, edits)))
    os.execv(configuration["runc"], ["runc", *sys.argv[1:]])  # noqa: S606 - containerd's own arguments


if __name__ == "__main__":
    main()
