"""The token of the placer's TCP port: the paths that need it, its forms, its file, and the streams of its readers."""

import asyncio
import logging
from pathlib import Path

import aiohttp
import msgspec
import pytest

from placer.api.access import CannotJudgeError, TokenFile, UnknownReaderError
from placer.live import streams
from placer.settings import load
from plimsoll.part.errors import InputError
from plimsoll.placer_api.access import PROXIED
from plimsoll.placer_api.http import Problem
from plimsoll.placer_api.live import LIVE_PATH
from plimsoll.placer_api.routes import ROUTES
from tests.placer.live.world import Stream, card, serving, state, world
from tests.servers.waiting import until, until_true

SECRET = "right-token.0~"  # noqa: S105 - it opens nothing
BEARER = {"Authorization": f"Bearer {SECRET}"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with the token."""
    path = tmp_path / "token"
    path.write_text(SECRET + "\n")
    return path


async def statuses(url: str, headers: dict[str, str]) -> dict[str, int]:
    """The status of each path, by GET."""
    found = {}
    async with aiohttp.ClientSession(headers=headers) as session:
        for path in (
            "/",
            "/page/main.js",
            "/nothing",
            LIVE_PATH,
            *(one.path for one in ROUTES if not one.owner_only),
        ):
            asked = path.format(namespace="team", name="nobody")
            async with session.get(url + asked) as response:
                found[path] = response.status
                assert SECRET not in str(response.headers)
    return found


async def test_all_but_health_and_the_files_of_the_page_need_the_token(file: Path) -> None:
    """Without the token each read is refused and says how to ask; with it each is answered."""
    async with serving(await world(state("n1", card("GPU-1"))), TokenFile(file)) as url:
        assert await statuses(url, {}) == {
            "/": 200,
            "/page/main.js": 200,
            "/nothing": 404,
            LIVE_PATH: 401,
            "/v1/state": 401,
            "/v1/nodes": 401,
            "/v1/gpus": 401,
            "/v1/pods/{namespace}/{name}/explain": 401,
            "/v1/relocation": 401,
            "/v1/openapi.json": 401,
            "/metrics": 401,
            "/healthz": 200,
            "/readyz": 200,
        }
        allowed = await statuses(url, BEARER)
        assert {path: status for path, status in allowed.items() if status != 200} == {
            "/nothing": 404,
            "/v1/pods/{namespace}/{name}/explain": 404,
            "/v1/relocation": 404,
        }
        async with aiohttp.request("GET", url + "/v1/state") as response:
            assert response.headers["WWW-Authenticate"] == 'Bearer realm="plimsoll"'
            problem = msgspec.json.decode(await response.read(), type=Problem)
            assert "PLIMSOLL_PLACER_TOKEN_FILE" in problem.message


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", "Bearer wrong")],
        [("Authorization", "Bearer " + SECRET + "x")],
        [("Authorization", "Bearer " + SECRET[:-1])],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer  ")],
        [("Authorization", "Basic " + SECRET)],
        [("Authorization", SECRET)],
        [("Authorization", f"Bearer {SECRET}, Bearer {SECRET}")],
        [("Authorization", f"Bearer {SECRET}"), ("Authorization", f"Bearer {SECRET}")],
        [("Authorization", f"Bearer {SECRET}"), (PROXIED, "Bearer wrong")],
        [("Cookie", f"token={SECRET}")],
        [("X-Forwarded-User", "admin")],
    ],
)
async def test_whatever_is_not_one_right_token_is_refused(file: Path, headers: list[tuple[str, str]]) -> None:
    """Wrong, cut, doubled and contradicting tokens, other schemes and names of users are answered with 401."""
    async with (
        serving(await world(), TokenFile(file)) as url,
        aiohttp.ClientSession() as session,
        session.get(url + "/v1/state", headers=headers) as response,
    ):
        assert response.status == 401


async def test_the_token_may_come_through_the_api_servers_proxy(file: Path) -> None:
    """The second header is as good as the first, in any case of its scheme; a token in the URL is none."""
    async with serving(await world(), TokenFile(file)) as url, aiohttp.ClientSession() as session:
        for path, headers, status in (
            ("/v1/state", {PROXIED: f"bearer {SECRET}"}, 200),
            (f"/v1/state?access_token={SECRET}&token={SECRET}", {}, 401),
        ):
            async with session.get(url + path, headers=headers) as response:
                assert response.status == status


@pytest.mark.parametrize(
    "path",
    [
        "/%76%31/state",
        "//v1/state",
        "/./v1/state",
        "/healthz/../v1/state",
        "/page/../v1/state",
        "/page/%2e%2e/v1/state",
        "/page/..%2fv1/state",
        "/page/main.js/../../v1/state",
        "/v1/state/",
        "/v1/state;/healthz",
        "/v1/state?/healthz",
        "http://other/v1/state",
        "http://other/healthz/../v1/state",
    ],
)
async def test_no_spelling_of_a_path_passes_the_guard(file: Path, path: str) -> None:
    """A path that is written in another way is refused or does not exist, for GET and for HEAD."""
    async with serving(await world(), TokenFile(file)) as url:
        port = int(url.rpartition(":")[2])
        for method in ("GET", "HEAD"):
            stream, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = await stream.read()
            writer.close()
            assert int(answer.split()[1]) in {400, 401, 404}, answer[:100]
            assert b'"nodes"' not in answer


@pytest.mark.parametrize(
    "header",
    [
        f"Authorization: Bearer {SECRET}\1",
        f"Authorization Bearer {SECRET}",
        f"X: {'x' * 9000}{SECRET}",
        f" {SECRET}",
    ],
)
async def test_no_log_has_a_token(file: Path, header: str, caplog: pytest.LogCaptureFixture) -> None:
    """A header that is damaged is answered with 400, and is no line of the log, which others read."""
    caplog.set_level(logging.DEBUG)
    async with serving(await world(), TokenFile(file)) as url:
        stream, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(f"GET /v1/state HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode())
        assert (await stream.read()).split()[1] == b"400"
        writer.close()
    assert [one.getMessage() for one in caplog.records if one.name != "asyncio"] == []
    assert SECRET not in caplog.text


async def test_a_new_token_in_the_file_is_in_force_by_itself(file: Path) -> None:
    """The old token is refused once the file has another one, and nobody is let in while the file is gone."""
    access = TokenFile(file)
    await access.check(SECRET, "/")
    await asyncio.to_thread(file.write_text, "another")

    async def accepted(token: str) -> bool:
        try:
            await access.check(token, "/")
        except UnknownReaderError:
            return False
        return True

    await until(lambda: accepted("another"))
    assert not await accepted(SECRET)
    for damage in (file.unlink, lambda: file.write_text(""), lambda: file.write_text("two words")):
        access = TokenFile(file)
        damage()
        with pytest.raises(CannotJudgeError, match="log has the cause") as refused:
            await access.check("another", "/")
        assert str(file) not in str(refused.value)


async def test_a_stream_ends_once_its_token_is_withdrawn(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open stream is judged again and again; with another token in the file it ends."""
    monkeypatch.setattr(streams, "JUDGED_S", 0.1)
    made = await world(state("n1", card("GPU-1")))
    async with (
        serving(made, TokenFile(file)) as url,
        aiohttp.ClientSession(headers=BEARER) as session,
        session.get(url + LIVE_PATH) as response,
    ):
        stream = Stream(response)
        await stream.until("synced")
        await asyncio.to_thread(file.write_text, "another")
        await stream.ended()
        await until_true(lambda: made.page.streams._port.taken == 0)


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"HTTP_AUTH": "token"}, "PLIMSOLL_HTTP_AUTH: 'token' has no token; name the file"),
        ({"HTTP_AUTH": "token", "HTTP_TOKEN_FILE": "/nonexistent"}, "cannot be read"),
        ({"HTTP_AUTH": "yes"}, "PLIMSOLL_HTTP_AUTH: 'yes' is refused"),
        ({"HTTP_TOKEN_FILE": "/x"}, "would protect nothing"),
        ({"HTTP_AUTH": "kubernetes", "LOCAL_NODES": "/nodes.json"}, "needs a cluster"),
    ],
)
def test_settings_that_would_protect_nothing_are_refused(variables: dict[str, str], problem: str) -> None:
    """A token without a file, a file without use, and a cluster that is off end the placer at its start."""
    with pytest.raises(InputError, match=problem):
        load({"PLIMSOLL_" + name: value for name, value in variables.items()})
