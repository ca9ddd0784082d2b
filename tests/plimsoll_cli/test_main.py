"""The command line as a whole: one form of help, a fast start, pipes, colours, completion, and kubectl's plugin."""

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from plimsoll.part.errors import BAD_INPUT
from plimsoll_cli import output
from plimsoll_cli.columns import aligned, columns, shortened
from plimsoll_cli.commands import SUMMARIES, command_of
from plimsoll_cli.completion import candidates
from plimsoll_cli.main import main
from tests.cluster import assets
from tests.placer.live.world import serving
from tests.placer.local.world import REPOSITORY
from tests.plimsoll_cli.top.fleet import fleet

OWN = [name for name in SUMMARIES if not command_of(name).passes]
SLOW = {"asyncio", "rich", "msgspec", "aiohttp", "nats", "kubernetes", "logging", "yaml", "redis", "typer"}
"""Packages that take 50 to 500 ms to import."""


async def shell(script: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a script of bash, in which `plimsoll` is this tree's."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f'plimsoll() {{ {sys.executable} -m plimsoll "$@"; }}; {script}'),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "80", **environment},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_help_is_one_form_and_fits_80_columns() -> None:
    """Every command's help names its options, exit codes and -h, and imports nothing slow.

    The start of the command is the interpreter's and argparse's alone. The list of commands names every command.
    """
    calls = [[name, "-h"] for name in OWN] + [["--help"], ["--version"]]
    script = f"""import contextlib, sys
from plimsoll_cli.main import main
for words in {calls}:
    with contextlib.suppress(SystemExit):
        main(words)
    print("=====")
print(*sys.modules, file=sys.stderr)
"""
    code, out, err = await shell(f"{sys.executable} -c {shlex.quote(script)}")
    assert code == 0, err
    assert "argparse" in err.split()
    assert SLOW & set(err.split()) == set()
    for name, text in zip(OWN, out.split("=====\n"), strict=False):
        assert text.startswith(f"usage: plimsoll {name}"), name
        assert "exit codes:\n  " in text, name
        assert "-h, --help" in text, name
        assert max(map(len, text.splitlines())) <= 80, name
    code, out, err = await shell("plimsoll gpus -h >/dev/null && plimsoll; plimsoll --version")
    assert re.findall(r"^  (\w+)  +[A-Z].*\.$", out, re.MULTILINE) == list(SUMMARIES)
    assert (code, err) == (0, "")
    assert re.search(r"^plimsoll \d+\.\d+\.\d+$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gpsu", "'gpsu' is no command; did you mean `plimsoll gpus`?"),
        ("--frob", "'--frob' is no option; see `plimsoll --help`"),
        ("gpus --nod x", "plimsoll gpus: unknown options: --nod x"),
        ("status x", "plimsoll status: unknown arguments: x"),
        ("gpus -w soon", "'soon' is no number; give one such as 5"),
        ("gpus -w 0", "0 is not from 0.1 to 3600 seconds"),
        ("gpus -o xml", "choose from"),
        ("run --gpu-memory 1Gi python --x", "unknown options: --x; put -- before a command that has options"),
        ("pods -A -n team", "not allowed with argument"),
        ("explain ''", "POD: '' is no name; name a pod"),
        ("explain a/b", "POD: 'a/b' is no name"),
        ("resize --gpu-memory -1 p", "--gpu-memory: '-1' is negative; give 0 or more bytes"),
        ("resize --gpu-share many p", "--gpu-share: 'many' is not a quantity"),
        (
            "gpus --placer 127.0.0.1:8080",
            "'127.0.0.1:8080' has no scheme; write http://127.0.0.1:8080, or ./127",
        ),
        ("gpus --placer http://", "--placer or PLIMSOLL_PLACER_URL: 'http://' is no URL"),
        ("simulate --frob", "usage: plimsoll simulate"),
    ],
)
async def test_a_mistake_is_named_in_two_lines(words: str, said: str) -> None:
    """The exit code is 2, and nothing is on standard output."""
    code, out, err = await shell(f"plimsoll {words}")
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) <= 2 or words.startswith("simulate")  # a program of its own


async def test_a_reader_that_ends_early_ends_the_command_silently() -> None:
    """`plimsoll gpus | head -1` prints one line and no traceback, whatever the form."""
    async with serving(await fleet()) as url:
        for words in ("gpus", "pods -A", "nodes", "top", "gpus -o yaml", "gpus -w 0.1"):
            code, out, err = await shell(
                f"plimsoll {words} --placer {url} | head -1; exit ${{PIPESTATUS[0]}}"
            )
            assert (len(out.splitlines()), err) == (1, ""), words
            assert code in (0, 141), words  # 0 where all was written before the reader had ended


async def test_pipes_get_no_colours_and_no_control_characters() -> None:
    """The table of a cluster with a hostile name is plain text in a pipe; JSON and YAML have the name as it is."""
    async with serving(await fleet()) as url:
        for words in ("pods -A", "top --once", "gpus"):
            code, out, err = await shell(f"plimsoll {words} --placer {url}")
            assert (code, err) == (0, "")
            assert "\x1b" not in out, words
        code, out, _ = await shell(f"plimsoll pods -A -o yaml --placer {url}")
        assert 'name: "hostile\\e[2J"' in out


async def test_bash_completes_commands_options_and_values(tmp_path: Path) -> None:
    """The script that the command prints, in a real bash."""
    code, out, err = await shell(
        f"""printf '#!/bin/sh\\nexec {sys.executable} -m plimsoll "$@"\\n' > "$HOME/plimsoll"
        chmod +x "$HOME/plimsoll"; PATH="$HOME:$PATH"; unset -f plimsoll
        source <(plimsoll completion bash)
        for words in "plimsoll g" "plimsoll gpus --mo" "plimsoll gpus -o " "plimsoll completion z"; do
          COMP_WORDS=($words); [ "${{words: -1}}" != " " ] || COMP_WORDS+=("")
          COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _plimsoll; echo "${{COMPREPLY[*]}}"
        done""",
        HOME=str(tmp_path),
    )
    assert (code, err) == (0, "")
    assert out.splitlines() == ["gpus", "--model", "table wide json yaml", "zsh"]


def test_candidates_are_those_of_the_parsers() -> None:
    """Commands, options, values after an option and after `=`; none after `--`, where another command begins."""
    assert list(candidates(["no"])) == ["nodes"]
    assert list(candidates(["top", "--sort", "p"])) == ["promised"]
    assert list(candidates(["gpus", "--output=j"])) == ["--output=json"]
    assert list(candidates(["run", "--", "--gpu"])) == []
    assert list(candidates(["unknown", ""])) == []


async def test_kubectl_finds_the_plugin(tmp_path: Path) -> None:
    """A real kubectl runs `kubectl plimsoll`, whose help is in its terms, and asks the package for candidates."""
    kubectl = assets.binary("kubectl")
    for name, call in (
        ("kubectl-plimsoll", "main:main"),
        ("kubectl_complete-plimsoll", "completion:kubectl"),
    ):
        module, _, function = call.partition(":")
        plugin = tmp_path / name
        plugin.write_text(
            f"#!{sys.executable}\nimport sys\nfrom plimsoll_cli.{module} import {function}\nsys.exit({function}())\n"
        )
        plugin.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    code, out, err = await shell(f"{kubectl} plimsoll gpus -h", PATH=path)
    assert (code, err) == (0, "")
    assert out.startswith("usage: kubectl plimsoll gpus")
    code, out, _ = await shell(f"{kubectl} __complete plimsoll gpus -o ''", PATH=path)
    assert out.splitlines() == ["table", "wide", "json", "yaml", ":4"]


def test_cells_are_cut_by_columns_and_not_by_letters() -> None:
    """Wide letters take two columns, marks none; the first column loses its middle, the last its end."""
    assert columns("模型e\u0301") == 5
    assert shortened("模型模型", 6) == "模型…"
    assert shortened("pool-a-node-1", 9, middle=True) == "pool…de-1"
    [line] = aligned([("gpu-pool-a-node-17", "1", "a long reason that names all of this")], width=40)
    assert line == "gpu-pool-a-node-17  1  a long reason th…"
    [line] = aligned(
        [("gpu-pool-a-node-17-in-a-zone", "1", "a long reason that names all of this")], width=32
    )
    assert line == "gpu-poo…-a-zone  1  a long reas…"


def test_texts_of_tenants_cannot_command_a_terminal() -> None:
    """Escapes and other control characters are replaced, letters of all scripts stay."""
    assert output.printable("a\x1b[2Jb\x9bc\r模型") == "a\ufffd[2Jb\ufffdc\ufffd模型"


@pytest.mark.parametrize(
    "words",
    [
        "nodes --model",
        "gpus --model",
        "gpus --node",
        "pods --node",
        "explain p --reason",
        "events --type",
        "events --node",
        "events --pod",
        "resize p --gpu-memory 1Gi --container",
    ],
)
def test_an_empty_variable_of_a_shell_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--model "$MODEL"` without the variable would otherwise list nothing, or everything."""
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), " "])
    assert ended.value.code == BAD_INPUT
    assert "' ' is empty; give a value, or leave the option out" in capsys.readouterr().err
