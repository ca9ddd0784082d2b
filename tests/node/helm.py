"""The program `helm` for documents that are executed: Helm's own engine, with the options that the documents use.

`HELM_TEST_VALUES` names a file of values that go below those of the command line, as `--values` would give them.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import yaml

VALUES_VARIABLE: Final = "HELM_TEST_VALUES"


def main() -> None:
    """Install or uninstall a release."""
    parser = argparse.ArgumentParser(prog="helm")
    commands = parser.add_subparsers(dest="command", required=True)
    install, uninstall = commands.add_parser("install"), commands.add_parser("uninstall")
    for one in (install, uninstall):
        one.add_argument("name")
        one.add_argument("--namespace", "-n", default="default")
    install.add_argument("chart")
    install.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    with helm.Config(kubeconfig_path=os.environ["KUBECONFIG"], namespace=given.namespace) as config:
        if given.command == "install":
            values = yaml.safe_load(Path(os.environ[VALUES_VARIABLE]).read_text())
            for expression in given.set:
                values = merged(values, helm.parse_set_string(expression))
            release = config.install(given.chart, given.name, values)
            sys.stdout.write(f"NAME: {release['name']}\nSTATUS: {release['status']}\n")
        else:
            config.uninstall(given.name)
            sys.stdout.write(f'release "{given.name}" uninstalled\n')


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings as one, deeply; `above` wins."""
    found = dict(below)
    for key, value in above.items():
        deeper = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if deeper else value
    return found


if __name__ == "__main__":
    main()
