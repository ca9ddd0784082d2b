"""Everything that the documents name exists: files, headings, commands, options, settings, metrics, targets."""

import dataclasses
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml

from plimsoll.contract import ANSWERED, ASSIGNED_PREFIX
from plimsoll.demand import parse_pod
from plimsoll.kube.models import decode_pod
from plimsoll_cli.command import parsed, parser_of
from plimsoll_cli.commands import COMMANDS
from tools.metrics import described
from tools.settings import PARTS

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / "emulator" / "README.md", ROOT / "docs" / "examples" / "index.md"),
    *(ROOT / "hook" / "lib" / "README.md", ROOT / "bench" / "results" / "README.md"),
    *(ROOT / "placer" / "core" / "policies" / "README.md", *sorted((ROOT / "tests").glob("*/README.md"))),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "runbooks").glob("*.md")),
)
TEXTS = {path.relative_to(ROOT): path.read_text() for path in DOCUMENTS}
SOURCES = "\n".join(
    path.read_text()
    for part in (
        "plimsoll",
        "plimsoll_alerts",
        "plimsoll_cli",
        "monitor",
        "placer",
        "solo",
        "hook",
        "emulator",
        "tests/gpu",
    )
    for path in sorted((ROOT / part).rglob("*"))
    if path.suffix in {".py", ".c", ".h"}
)


def every(pattern: str) -> set[str]:
    """All matches of a pattern in any document."""
    return {found for text in TEXTS.values() for found in re.findall(pattern, text)}


def commands() -> Iterator[list[str]]:
    """The arguments of each `plimsoll` command in a console example, without those that a shell would consume."""
    for text in TEXTS.values():
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
            for line in re.findall(r"^\$ plimsoll (.*)$", block, re.MULTILINE):
                yield shlex.split(line, comments=True)


def options(command: str) -> set[str]:
    """Every option of a command of `plimsoll`."""
    return {
        name for action in parser_of(COMMANDS[command], command)._actions for name in action.option_strings
    }


def test_every_link_leads_somewhere() -> None:
    """Every link leads to an existing file and to a heading in it."""
    for document, text in TEXTS.items():
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            name, _, heading = target.partition("#")
            path = (ROOT / document).parent / name if name else ROOT / document
            assert path.exists(), f"{document}: {target}"
            if heading:
                titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
                slugs = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
                assert heading in slugs, f"{document}: {target}"


def test_every_command_shown_can_be_typed() -> None:
    """The real parsers accept every command that is shown; nothing is executed."""
    shown = list(commands())
    assert {words[0] for words in shown} == COMMANDS.keys() - {
        "simulate"
    }  # which documents name by its module
    for name, *words in shown:
        parsed(COMMANDS[name], name, words)


def test_every_option_named_in_passing_exists() -> None:
    """Every option that a text mentions exists."""
    own = [name for name, command in COMMANDS.items() if not command.passes]
    known = {name: options(name) for name in own}
    named = every(rf"`plimsoll ((?:{'|'.join(own)}) [^`]*)`")
    assert named
    for command in named:
        name, *words = command.split()
        assert {word for word in words if re.match(r"--\w", word)} <= known[name], command


def test_the_pod_shown_is_a_good_one() -> None:
    """The contract reads the example pod as the comments beside it say."""
    [shown] = re.findall(r"```yaml\n(.*?)```", TEXTS[Path("README.md")], re.DOTALL)
    demand = parse_pod(decode_pod(msgspec.json.encode(yaml.safe_load(shown))))
    [container] = demand.containers
    assert (container.memory_bytes, container.share_pct, container.limit_pct) == (8 << 30, 30, 100)
    assert demand.gpu_models == ()


def test_every_setting_named_is_one() -> None:
    """Every setting belongs to a part, or is a variable that the sources know."""
    known = {
        prefix + field.name.upper() for prefix, kind in PARTS.values() for field in dataclasses.fields(kind)
    }
    present = (
        text for path, text in TEXTS.items() if path.name != "CHANGELOG.md"
    )  # it names what is gone too
    named = {name for text in present for name in re.findall(r"PLIMSOLL_[A-Z_]+[A-Z]", text)}
    named.remove("PLIMSOLL_NAST_URL")  # the example of a misspelt one
    assert {name for name in named - known if f'"{name}"' not in SOURCES} == set()


def test_every_metric_named_is_served() -> None:
    """Every metric that a document names is served by some part; series of histograms count as theirs."""
    known = {one.name for metrics in described().values() for one in metrics}
    named = every(r"(?<![-\w./])plimsoll_(?:gpu|task|limit|outbox|hook|broker|placer|webhook|pool)_[a-z_]+")
    series = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}
    assert {name for name in series if name not in known} == set()


def test_every_target_and_module_named_is_there() -> None:
    """Every target has a rule in the Makefile, and every module can be run."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert every(r"(?:`|\$ )make ([a-z0-9-]+)") <= targets
    for module in every(r"python -m ([a-z_.]+\w)"):
        spec = importlib.util.find_spec(module)
        assert spec is not None, module
        assert spec.submodule_search_locations is None or importlib.util.find_spec(f"{module}.__main__"), (
            module
        )


def test_the_copy_of_a_pod_leaves_out_all_that_is_refused_on_a_new_one() -> None:
    """The command's pattern knows every annotation in which the placer answers."""
    [pattern] = re.findall(r'test\("([^"]+)"\)', TEXTS[Path("docs/pods.md")])
    for name in (*ANSWERED, f"{ASSIGNED_PREFIX}main"):
        assert re.search(pattern, name), name
