"""OAuth at a real MCP server with a real authorization server: logins, refreshes, and refusals."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.oauth_servers import OAuthServers
from turnstate import Message, SessionManager, ToolCallRequest, ToolCallResult
from turnstate.agent import Agent, ToolFinished
from turnstate.errors import InputError
from turnstate.home import Home
from turnstate.testing import ScriptedModel
from turnstate.tools import Approvals, McpFailed, McpServer, McpServers, Rule, ToolManager, oauth
from turnstate.tools.logins import FILE, Logins, is_allowed
from turnstate.tools.mcp import log_in

ALLOW = Approvals([Rule("*", "allow")])
RUN = "run: turnstate mcp login tickets"


@pytest.fixture
def servers() -> Iterator[OAuthServers]:
    with OAuthServers().running() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def tickets(servers: OAuthServers, name: str = "tickets") -> McpServer:
    return McpServer(name=name, url=servers.url, oauth=True)


async def browse(address: str) -> None:
    """Open an address as a browser does: follow the redirections up to the page of the login."""
    await asyncio.to_thread(lambda: urllib.request.urlopen(address, timeout=30).read())


def logged_in(servers: OAuthServers, home: Home) -> None:
    assert asyncio.run(log_in(tickets(servers), browse, home=home))


async def added(servers: OAuthServers, home: Home) -> tuple[dict[str, str], str]:
    """Return the failures of a connection, and the answer of a call."""
    manager = ToolManager(approvals=ALLOW)
    async with McpServers([tickets(servers)], manager, home=home) as running:
        if running.failures:
            return running.failures, ""
        calls = [ToolCallRequest(name="tickets__add", args={"a": 2, "b": 3})]
        results: list[ToolCallResult] = [one async for one in manager.run(calls)]
        return running.failures, str(results[0].result)


def kept_document(home: Home) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((home.path / FILE).read_text())
    return found


def expire(home: Home) -> None:
    document = kept_document(home)
    for login in document.values():
        login["expires_at"] = 1.0
    (home.path / FILE).write_text(json.dumps(document))


@pytest.mark.req("L2")
def test_a_login_is_kept_for_its_owner_alone_and_a_call_uses_it(servers: OAuthServers, home: Home) -> None:
    logged_in(servers, home)
    assert stat.S_IMODE((home.path / FILE).stat().st_mode) == 0o600
    assert set(kept_document(home)) == {servers.url}
    assert asyncio.run(added(servers, home)) == ({}, "5")


@pytest.mark.req("L2")
def test_without_a_login_an_agent_asks_no_server_and_says_what_to_run(
    servers: OAuthServers, home: Home
) -> None:
    failures, _ = asyncio.run(added(servers, home))
    assert RUN in failures["tickets"]
    assert servers.requests == []
    assert not home.path.exists()


@pytest.mark.req("L2")
def test_an_expired_token_is_refreshed_at_the_authorization_server_and_the_new_one_is_kept(
    servers: OAuthServers, home: Home
) -> None:
    logged_in(servers, home)
    expire(home)
    servers.authority.access.clear()
    servers.requests.clear()
    for _ in range(2):  # the refresh token was valid once: the second process needs the one that was kept
        assert asyncio.run(added(servers, home)) == ({}, "5")
    assert servers.requests.count("POST /token") == 1
    assert "GET /authorize" not in servers.requests
    assert "POST /register" not in servers.requests


@pytest.mark.req("L2")
def test_a_token_that_the_server_rejects_early_is_refreshed_in_the_middle_of_a_connection(
    servers: OAuthServers, home: Home
) -> None:
    logged_in(servers, home)

    async def rejected() -> str:
        manager = ToolManager(approvals=ALLOW)
        async with McpServers([tickets(servers)], manager, home=home) as running:
            assert running.failures == {}
            servers.authority.access.clear()
            calls = [ToolCallRequest(name="tickets__add", args={"a": 2, "b": n}) for n in range(5)]
            return "".join(sorted([str(one.result) async for one in manager.run(calls)]))

    servers.requests.clear()
    assert asyncio.run(rejected()) == "23456"
    assert servers.requests.count("POST /token") == 1
    assert "GET /authorize" not in servers.requests


@pytest.mark.req("L2")
def test_two_processes_refresh_one_login_only_once(servers: OAuthServers, home: Home) -> None:
    logged_in(servers, home)
    expire(home)

    async def both() -> list[object]:
        return [*await asyncio.gather(*(added(servers, home) for _ in range(3)))]

    servers.requests.clear()
    assert asyncio.run(both()) == [({}, "5")] * 3
    assert servers.requests.count("POST /token") == 1


@pytest.mark.req("L2")
def test_a_revoked_login_is_an_error_that_says_what_to_run_and_starts_no_login(
    servers: OAuthServers, home: Home
) -> None:
    logged_in(servers, home)
    servers.authority.access.clear()
    servers.authority.refresh.clear()
    servers.requests.clear()
    failures, _ = asyncio.run(added(servers, home))
    assert RUN in failures["tickets"]
    assert {one for one in servers.requests if "/mcp" not in one} == {"POST /token"}
    logged_in(servers, home)
    assert asyncio.run(added(servers, home)) == ({}, "5")


@pytest.mark.req("L2")
@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_more_than_was_granted_is_an_error_and_starts_no_login(
    servers: OAuthServers, home: Home, status: int
) -> None:
    logged_in(servers, home)
    servers.challenge = 'Bearer error="insufficient_scope", scope="more"'
    servers.answers["/mcp"] = (status, b"{}")
    servers.requests.clear()
    failures, _ = asyncio.run(added(servers, home))
    assert RUN in failures["tickets"]
    assert set(servers.requests) <= {"POST /mcp", "POST /token"}


@pytest.mark.req("L2")
def test_calls_with_one_login_run_side_by_side(servers: OAuthServers, home: Home) -> None:
    logged_in(servers, home)

    async def met() -> list[object]:
        manager = ToolManager(approvals=ALLOW)
        async with McpServers([tickets(servers)], manager, home=home):
            calls = [ToolCallRequest(name="tickets__meet", args={"count": 3}) for _ in range(3)]
            return [one.result async for one in manager.run(calls)]

    assert asyncio.run(met()) == ["met"] * 3


@pytest.mark.req("L2")
def test_a_login_survives_an_authorization_server_that_is_down(servers: OAuthServers, home: Home) -> None:
    logged_in(servers, home)
    expire(home)
    servers.answers["/token"] = (503, b"later")
    failures, _ = asyncio.run(added(servers, home))
    assert "HTTP status 503" in failures["tickets"]
    assert "turnstate mcp login" not in failures["tickets"]
    servers.answers.clear()
    assert asyncio.run(added(servers, home)) == ({}, "5")


@pytest.mark.req("L2")
def test_a_logout_removes_the_tokens_and_a_refresh_under_way_does_not_bring_them_back(
    servers: OAuthServers, home: Home
) -> None:
    logged_in(servers, home)
    logins = Logins(home)
    before = logins.get(servers.url)
    assert before is not None
    assert logins.forget(servers.url)
    assert not logins.forget(servers.url)
    logins.renew(servers.url, before, before)
    assert kept_document(home) == {}
    assert RUN in asyncio.run(added(servers, home))[0]["tickets"]


@pytest.mark.req("L2")
def test_another_address_with_the_same_name_gets_no_token(servers: OAuthServers, home: Home) -> None:
    logged_in(servers, home)
    with OAuthServers().running() as others:
        assert RUN in asyncio.run(added(others, home))[0]["tickets"]
        assert others.requests == []


@pytest.mark.req("L2")
@pytest.mark.parametrize("answer", [b'{"access_token": "leak-1", "token_type": "mac"}', b'"leak-1', b"[1]"])
def test_tokens_are_in_no_log_and_no_error(
    servers: OAuthServers, home: Home, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        logged_in(servers, home)
        assert asyncio.run(added(servers, home)) == ({}, "5")
        expire(home)
        servers.answers["/token"] = (200, answer)
        failures, _ = asyncio.run(added(servers, home))
        assert "an invalid answer" in failures["tickets"]
        with pytest.raises(McpFailed, match="an invalid answer") as failed:
            asyncio.run(log_in(tickets(servers), browse, home=home))
    said = f"{caplog.text} {failures} {failed.value!r} {Logins(home).get(servers.url)!r}"
    assert [secret for secret in (*servers.authority.issued, "leak-1") if secret in said] == []


@pytest.mark.req("L2")
def test_a_server_that_repeats_the_token_in_an_error_does_not_make_it_visible(
    servers: OAuthServers, home: Home
) -> None:
    logged_in(servers, home)
    token = servers.authority.issued[0]
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": f"Bearer {token} is bad"}}
    servers.answers["/mcp"] = (400, json.dumps(error).encode())
    failures, _ = asyncio.run(added(servers, home))
    assert token not in failures["tickets"]


@pytest.mark.req("L2")
def test_a_refused_login_and_a_foreign_answer_keep_nothing(servers: OAuthServers, home: Home) -> None:
    servers.authority.refuses = True
    with pytest.raises(McpFailed, match="the login was refused: access_denied"):
        asyncio.run(log_in(tickets(servers), browse, home=home))
    servers.authority.refuses = False
    statuses = []

    async def attacked(address: str) -> None:
        """Answer in the user's place, without the state; the user answers afterwards."""
        (redirect,) = oauth.parse_qs(oauth.urlsplit(address).query)["redirect_uri"]
        for query in ("code=evil", "code=evil&state=guess", "error=access_denied", ""):
            try:
                await browse(f"{redirect}?{query}")
            except urllib.error.HTTPError as error:
                statuses.append(error.code)
        await browse(address)

    assert asyncio.run(log_in(tickets(servers), attacked, home=home))
    assert statuses == [404] * 4
    assert asyncio.run(added(servers, home)) == ({}, "5")


@pytest.mark.req("L2")
def test_a_login_that_no_one_finishes_ends(
    servers: OAuthServers, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def shown(_: str) -> None:
        """Leave it to a user who does not come."""

    monkeypatch.setattr("turnstate.tools.mcp.LOGIN_SECONDS", 1.0)
    with pytest.raises(McpFailed, match="was not finished in"):
        asyncio.run(log_in(tickets(servers), shown, home=home))
    assert not (home.path / FILE).exists()


@pytest.mark.req("L2")
def test_a_server_cannot_lead_a_login_to_another_address_of_the_network(
    servers: OAuthServers, home: Home
) -> None:
    servers.answers["/mcp"] = (401, b"{}")
    servers.challenge = 'Bearer resource_metadata="http://169.254.169.254/latest/meta-data"'
    with pytest.raises(McpFailed, match="not allowed"):
        asyncio.run(log_in(tickets(servers), browse, home=home))
    assert set(servers.requests) == {"POST /mcp"}


@pytest.mark.req("L2")
@pytest.mark.parametrize(
    ("url", "server", "allowed"),
    [
        ("https://login.example.com/token", "https://mcp.example.com/mcp", True),
        ("http://login.example.com/token", "https://mcp.example.com/mcp", False),
        ("https://127.0.0.1/token", "https://mcp.example.com/mcp", False),
        ("https://localhost/token", "https://mcp.example.com/mcp", False),
        ("https://127.1/token", "https://mcp.example.com/mcp", False),
        ("https://2130706433/token", "https://mcp.example.com/mcp", False),
        ("https://[::ffff:10.0.0.1]/token", "https://mcp.example.com/mcp", False),
        ("https://[fd00::1]/token", "https://mcp.example.com/mcp", False),
        ("https://10.1.2.3/token", "https://10.1.2.4/mcp", True),
        ("http://10.1.2.3/token", "http://10.1.2.3/mcp", False),
        ("http://localhost:1/token", "http://127.0.0.1:2/mcp", True),
        ("https://u:p@login.example.com/", "https://mcp.example.com/mcp", False),
        ("file:///etc/passwd", "https://mcp.example.com/mcp", False),
        ("https://login.example.com:x/", "https://mcp.example.com/mcp", False),
    ],
)
def test_where_a_login_may_go(url: str, server: str, allowed: bool) -> None:
    assert is_allowed(url, server=server) is allowed


@pytest.mark.req("L2")
def test_tokens_are_not_sent_without_encryption_or_beside_another_authorization() -> None:
    with pytest.raises(InputError, match="https"):
        McpServer(name="tickets", url="http://mcp.example.com/mcp", oauth=True)
    with pytest.raises(InputError, match="https"):
        McpServer(name="tickets", command="server", oauth=True)
    with pytest.raises(InputError, match="Authorization"):
        McpServer(
            name="t", url="https://mcp.example.com", oauth=True, headers={"authorization": "Bearer ${T}"}
        )


@pytest.mark.req("L2")
def test_tokens_are_not_in_the_store_of_an_agent_whose_login_is_revoked(
    servers: OAuthServers, home: Home, tmp_path: Path
) -> None:
    logged_in(servers, home)

    results = list[str]()

    async def run() -> None:
        manager = ToolManager(approvals=ALLOW)
        calls = [ToolCallRequest(name="tickets__add", args={"a": 2, "b": n}) for n in (3, 4)]
        model = ScriptedModel(*(Message.assistant(None, tool_calls=[one]) for one in calls), "done")
        async with (
            SessionManager.open(f"sqlite:///{tmp_path}/agent.db") as sessions,
            McpServers([tickets(servers)], manager, home=home) as running,
        ):
            agent = Agent(model=model, session=await sessions.create(), tools=manager)
            async for event in agent.run("Add."):
                if isinstance(event, ToolFinished):
                    results.append(str(event.result.result))
                    servers.authority.access.clear()
                    servers.authority.refresh.clear()
            results.extend([*running.failures.values(), *running.notices])

    asyncio.run(run())
    assert results[0] == "5"
    assert RUN in results[1]
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("agent.db*")) + repr(results).encode()
    assert [secret for secret in servers.authority.issued if secret.encode() in kept] == []
