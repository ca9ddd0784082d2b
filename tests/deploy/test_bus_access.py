"""Parts come to a guarded NATS by files, and a node's monitor speaks for its own node alone."""

import asyncio
import base64
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import nats
import nkeys
import pytest

from monitor import settings
from monitor.core.entries import Entry
from monitor.core.observation import JournalPosition
from monitor.core.tasks import Tasks
from monitor.outbox.database import Checkpoint
from monitor.outbox.store import open_store
from monitor.publisher import BATCH
from placer import settings as placer_settings
from plimsoll.bus.subjects import state_subject, task_subject
from plimsoll.ids import NodeName
from plimsoll.part.errors import InputError
from plimsoll_cli.demo import servers
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.monitor.harness import MonitorProcess, until_true
from tests.placer.extender.test_tls import authority
from tests.servers.waiting import PATIENCE_S

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
NODES = ("node-1.test", "node-2.test")


def new_key(prefix: int) -> nkeys.KeyPair:
    """A new nkey."""
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))


def users_of(keys: dict[str, nkeys.KeyPair]) -> str:
    """The user of each node, as docs/security.md shows it, by an nkey in the place of a password."""
    [block] = re.findall(r"```text\n(\{\n  user: node-1,.*?)```", SECURITY.read_text(), re.DOTALL)
    users = ""
    for node, key in keys.items():
        text = re.sub(r"user: node-1, password: .*", f"nkey: {key.public_key.decode()}", block)
        users += text.replace("node-1", node.replace(".", "_"))
    return users


@contextlib.asynccontextmanager
async def nats_with(configuration: str, folder: Path) -> AsyncIterator[EmbeddedServer]:
    """NATS with JetStream and this configuration."""
    path = folder / "nats.conf"
    store = f'jetstream {{store_dir: "{folder / "data"}"}}\n'
    await asyncio.to_thread(path.write_text, store + configuration)

    def arguments(port: int, _: Path) -> Sequence[str]:
        return ("--config", str(path), "--addr", "127.0.0.1", "--port", str(port))

    kind = ServerKind("nats-server", "nats", "Server is ready", servers._nats_program, arguments)
    async with running(kind, folder / "server") as server:
        yield server


@contextlib.asynccontextmanager
async def monitor_of(directory: Path, url: str, **given: object) -> AsyncIterator[MonitorProcess]:
    """A monitor as a process."""
    monitor = MonitorProcess(directory, url, **given)
    await monitor.start()
    try:
        yield monitor
    finally:
        await monitor.kill()


async def test_a_node_speaks_for_itself_alone(tmp_path: Path) -> None:
    """Over TLS with a client certificate, each monitor comes in by its nkey, and the server refuses other names."""
    made = authority(tmp_path, "ca")
    certificate, key = made.sign("server", "server")
    client_certificate, client_key = made.sign("client", "client")
    keys = {node: new_key(nkeys.PREFIX_BYTE_USER) for node in NODES}
    seed = tmp_path / "user.nk"
    await asyncio.to_thread(seed.write_bytes, keys[NODES[0]].seed + b"\n")
    tls = f'tls {{cert_file: "{certificate}", key_file: "{key}", ca_file: "{made.path}", verify: true}}\n'
    files = {
        "nats_ca": made.path,
        "nats_certificate": client_certificate,
        "nats_key": client_key,
        "nats_nkey": seed,
    }
    async with nats_with(f"{tls}authorization {{users: [{users_of(keys)}]}}\n", tmp_path) as server:
        url = server.url.replace("nats://", "tls://")
        async with monitor_of(tmp_path / "own", url, **files) as monitor:
            await until_true(lambda: monitor.logged("publishing"))
            await until_true(lambda: monitor.logged("made the stream"))
            assert not monitor.logged("NATS does not let us subscribe")
        async with monitor_of(tmp_path / "other", url, **{**files, "node": NODES[1]}) as monitor:
            await until_true(lambda: [line for line in monitor.log if refusal(NODES[1]) in str(line)])
            assert not monitor.logged("stopped")
        without = {name: value for name, value in files.items() if name != "nats_ca"}
        async with monitor_of(tmp_path / "stranger", url, **without) as monitor:
            await until_true(lambda: monitor.logged("events wait on disk"))
            assert not monitor.logged("publishing")


async def test_a_node_with_a_new_name_is_not_held_up_by_events_under_its_old_one(tmp_path: Path) -> None:
    """Where each monitor may publish under its node's name alone, events under a former name give way to new ones."""
    keys = {node: new_key(nkeys.PREFIX_BYTE_USER) for node in NODES}
    seed = tmp_path / "user.nk"
    await asyncio.to_thread(seed.write_bytes, keys[NODES[0]].seed + b"\n")
    store = await open_store(tmp_path / "monitor" / "state")
    former = [
        Entry(f"{number}", task_subject(what, NodeName("former")), b"{}")
        for number, what in enumerate(("started", "exited") * BATCH)
    ]
    await store.keep(former, Tasks(), Checkpoint("", JournalPosition()))
    await store.close()
    reader, reader_seed = new_key(nkeys.PREFIX_BYTE_USER), tmp_path / "reader.nk"
    await asyncio.to_thread(reader_seed.write_bytes, reader.seed + b"\n")
    users = f"{users_of(keys)}{{nkey: {reader.public_key.decode()}}}"
    async with nats_with(f"authorization {{users: [{users}]}}\n", tmp_path) as server:
        client = await nats.connect(server.url, nkeys_seed=str(reader_seed))
        events = await client.subscribe(state_subject(NodeName(NODES[0])))
        async with monitor_of(tmp_path / "monitor", server.url, nats_nkey=seed) as monitor:
            await events.next_msg(timeout=PATIENCE_S)
            dropped = monitor.logged("events under a former name of this node were dropped")
            assert sum(line["dropped"] for line in dropped) == len(former)
        await client.close()


def refusal(node: str) -> str:
    """The server's words for a refused report."""
    return f'Permissions Violation for Publish to "{state_subject(NodeName(node))}"'.lower()


def token(issuer: nkeys.KeyPair, subject: bytes, claims: dict[str, object]) -> str:
    """A JWT of NATS."""
    body = {"jti": "1", "iat": 1, "iss": issuer.public_key.decode(), "sub": subject.decode(), "nats": claims}
    parts = [json.dumps(each).encode() for each in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)]
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = base64.urlsafe_b64encode(issuer.sign(signed)).rstrip(b"=")
    return (signed + b"." + signature).decode()


async def test_a_monitor_comes_in_by_a_credentials_file(tmp_path: Path) -> None:
    """A server that trusts an operator's JWTs takes the monitor by the file that `nsc` writes, and nobody without."""
    prefixes = (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT)
    operator, system, account = map(new_key, prefixes)
    user = new_key(nkeys.PREFIX_BYTE_USER)
    free = dict.fromkeys(("subs", "conn", "leaf", "imports", "exports", "data", "payload"), -1)
    room = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    limits = {**free, "wildcards": True}
    preload = {
        system: {"limits": limits, "type": "account", "version": 2},
        account: {"limits": {**limits, **room}, "type": "account", "version": 2},
    }
    accounts = "".join(
        f"{key.public_key.decode()}: {token(operator, key.public_key, claims)}\n"
        for key, claims in preload.items()
    )
    own = token(operator, operator.public_key, {"type": "operator", "version": 2})
    configuration = (
        f"operator: {own}\nsystem_account: {system.public_key.decode()}\n"
        f"resolver: MEMORY\nresolver_preload {{\n{accounts}}}\n"
    )
    jwt = token(
        account, user.public_key, {"subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2}
    )
    credentials = tmp_path / "monitor.creds"
    text = (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    await asyncio.to_thread(credentials.write_text, text)
    async with nats_with(configuration, tmp_path) as server:
        async with monitor_of(tmp_path / "own", server.url, nats_credentials=credentials) as monitor:
            await until_true(lambda: monitor.logged("publishing"))
        async with monitor_of(tmp_path / "stranger", server.url) as monitor:
            await until_true(lambda: monitor.logged("events wait on disk"))
            assert not monitor.logged("publishing")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"CA": "/none"}, ("PLIMSOLL_NATS_CA", "/none", "PEM")),
        ({"KEY": "/none"}, ("PLIMSOLL_NATS_CERTIFICATE", "other half")),
        ({"CERTIFICATE": "/none", "KEY": "/none"}, ("PLIMSOLL_NATS_CERTIFICATE", "/none", "PEM")),
        ({"CREDENTIALS": "/none"}, ("PLIMSOLL_NATS_CREDENTIALS", "/none", "readable")),
        ({"CREDENTIALS": "SECRET"}, ("PLIMSOLL_NATS_CREDENTIALS", ".creds")),
        ({"NKEY": "SECRET"}, ("PLIMSOLL_NATS_NKEY", "seed")),
        ({"CREDENTIALS": "SECRET", "NKEY": "SECRET"}, ("PLIMSOLL_NATS_NKEY", "second identity")),
    ],
)
def test_files_that_cannot_be_used_are_named_without_their_text(
    tmp_path: Path, given: dict[str, str], words: tuple[str, ...]
) -> None:
    """Monitor and placer refuse to start, with variable, path and remedy, and never show what is in a file."""
    secret = tmp_path / "file"
    secret.write_text("a word that nobody may read")
    environment = {
        f"PLIMSOLL_NATS_{name}": str(secret) if path == "SECRET" else path for name, path in given.items()
    }
    for load in (settings.load, placer_settings.load):
        own = {"PLIMSOLL_NODE": NODES[0]} if load is settings.load else {}
        with pytest.raises(InputError) as refused:
            load({**environment, **own})
        assert all(word in str(refused.value) for word in words)
        assert "nobody" not in str(refused.value)
