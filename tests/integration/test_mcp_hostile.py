"""MCP servers that are hostile or odd: their schemas, names, output, and what they are given."""

from __future__ import annotations

import asyncio
import json
import sys
from http.server import BaseHTTPRequestHandler
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.harness import hostile_mcp_server
from tests.harness.provider_server import LocalServer, Sent
from turnstate import ToolCallRequest, ToolCallResult
from turnstate.tools import Approvals, McpServer, McpServers, Rule, ToolManager, server_schema

PROGRAM = hostile_mcp_server.__file__
FOLDER = list[Path]()
FOREVER = "^(a+)+$"
LONG = "a" * 40 + "!"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    FOLDER[:] = [tmp_path]


def server(name: str, *tools: Any, **script: Any) -> McpServer:
    """Return a server of tools, each a name or a definition."""
    every = [{"name": one} if isinstance(one, str) else one for one in tools]
    options = {key: script.pop(key) for key in ("tools", "env") if key in script}
    path = FOLDER[0] / f"{name}.json"
    path.write_text(json.dumps({"tools": every, **script}))
    return McpServer(name=name, command=sys.executable, args=(PROGRAM, str(path)), **options)


def offering(name: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", **schema}, **more}


async def call(manager: ToolManager, name: str, **args: Any) -> ToolCallResult:
    (result,) = [one async for one in manager.run([ToolCallRequest(name=name, args=args)])]
    return result


def allowing() -> ToolManager:
    return ToolManager(approvals=Approvals([Rule("*", "allow")]))


@pytest.mark.req("L2", "L4")
def test_nothing_that_a_schema_refers_to_is_fetched() -> None:
    fetched = list[str]()

    def answer(path: str, _: bytes) -> Sent:
        fetched.append(path)
        return Sent(200, b"{}")

    async def run(url: str) -> None:
        manager = allowing()
        tools = [
            offering("direct", {"properties": {"a": {"$ref": f"{url}/direct"}}}),
            offering("based", {"$id": f"{url}/base/", "properties": {"a": {"$ref": "relative"}}}),
            offering("dynamic", {"properties": {"a": {"$dynamicRef": f"{url}/dynamic#x"}}}),
            offering("file", {"properties": {"a": {"$ref": "file:///etc/passwd"}}}),
            offering(
                "hidden", {"properties": {"a": {"$ref": "#/x/y"}}, "x": {"y": {"$ref": f"{url}/hidden"}}}
            ),
            offering("draft", {"$schema": f"{url}/draft", "properties": {"a": {"type": "integer"}}}),
            offering(
                "local", {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
            ),
        ]
        async with McpServers([server("s", *tools)], manager) as servers:
            assert [one.name for one in manager.tools] == ["s__hidden", "s__draft", "s__local"]
            refused = [text for text in servers.notices if "references are not fetched" in text]
            assert len(refused) == len(servers.notices) == 4
            hidden = await call(manager, "s__hidden", a=1)
            assert hidden.is_error
            assert "references are not fetched" in hidden.result
            for name in ("draft", "local"):
                assert (await call(manager, f"s__{name}", a=1)).result == name
                wrong = await call(manager, f"s__{name}", a="x")
                assert wrong.result == "invalid arguments: 'x' is not of type 'integer' at $.a"

    with LocalServer(answer) as listening:
        asyncio.run(run(listening.url))
    assert fetched == []


@pytest.mark.req("L2")
def test_a_pattern_that_takes_forever_stops_one_call_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        manager, beats = allowing(), 0
        pattern = offering("match", {"properties": {"a": {"type": "string", "pattern": FOREVER}}})
        keyed = offering("keys", {"patternProperties": {FOREVER: {}}, "additionalProperties": False})
        async with McpServers([server("s", pattern, keyed)], manager):
            assert (await call(manager, "s__match", a="aaa")).result == "match"
            monkeypatch.setattr(server_schema, "SECONDS", 0.5)
            calls = [call(manager, "s__match", a=LONG), call(manager, "s__keys", **{LONG: 1})]
            running = asyncio.gather(*calls)
            while not running.done():
                await asyncio.sleep(0.01)
                beats += 1
            for result in running.result():
                assert result.is_error
                assert "stopped after 0.5 seconds" in result.result
            assert beats  # the event loop was alive in the meantime

    asyncio.run(run())


@pytest.mark.req("L2")
def test_an_answer_is_not_matched_against_the_servers_own_pattern() -> None:
    """The SDK would do so in the event loop."""

    async def run() -> None:
        manager = allowing()
        output = {"type": "object", "properties": {"a": {"type": "string", "pattern": FOREVER}}}
        hostile = server("s", {"name": "t", "outputSchema": output}, structured={"a": LONG})
        async with McpServers([hostile], manager):
            assert (await call(manager, "s__t")).result == "t"

    asyncio.run(run())


REFUSED = {
    "itself": {"$ref": "#"},
    "in circles": {
        "allOf": [{"$ref": "#/$defs/a"}],
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "dynamic": {"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}]},
    "wide": {"properties": {f"p{number}": {"type": "string"} for number in range(10_000)}},
    "long": {"description": "x" * 500_000},
    "pattern": {"properties": {"a": {"pattern": "a" * 3_000}}},
    "keyed pattern": {"patternProperties": {"a" * 3_000: {}}},
}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.req("L2")
def test_a_schema_beyond_the_limits_costs_its_tool_and_no_other() -> None:
    async def run() -> None:
        manager = allowing()
        odd = [offering(name, schema) for name, schema in (REFUSED | {"deep": deep(40)}).items()]
        unusable = offering("unusable", {"properties": {"a": {"type": "any"}}})
        async with McpServers([server("s", *odd, unusable, "good")], manager) as servers:
            assert [one.name for one in manager.tools] == ["s__unusable", "s__good"]
            assert len(servers.notices) == len(odd)
            assert all("is not offered: its schema is refused, since it" in one for one in servers.notices)
            assert (await call(manager, "s__unusable", a=1)).result == "unusable"  # the server checks it

    asyncio.run(run())


@pytest.mark.req("L2")
def test_a_schema_that_cannot_be_checked_costs_its_tool_and_no_other() -> None:
    async def run() -> None:
        manager = allowing()
        odd = [
            offering("address", {"$schema": "http://[x"}),
            offering("base", {"$id": "http://[x", "properties": {"a": {"$ref": "b"}}}),
            offering("reference", {"properties": {"a": {"$ref": "http://[x"}}}),
        ]
        large = offering("large", {"properties": {"a": {"maximum": 10**30}}})
        async with McpServers([server("s", *odd, large, "good")], manager) as servers:
            assert servers.failures == {}
            assert [one.name for one in manager.tools] == ["s__large", "s__good"]
            assert len(servers.notices) == len(odd)
            assert all("is not offered: its schema is refused, since it" in one for one in servers.notices)
            assert (await call(manager, "s__large", a=10**20)).result == "large"

    asyncio.run(run())


LONG_NAME = "x" * 70


@pytest.mark.req("L1", "L2")
def test_tools_whose_names_collide_are_reachable_under_the_same_names_in_any_order() -> None:
    servers = [
        server("a", "b__c", f"{LONG_NAME}1", f"{LONG_NAME}2", "d.e", "d_e", "d/e"),
        server("a__b", "c"),
        server("a_", "b"),
    ]

    async def names(order: Any) -> dict[str, str]:
        manager = allowing()
        async with McpServers(order, manager) as running:
            assert running.notices == []
            return {one.name: str((await call(manager, one.name)).result) for one in manager.tools}

    async def run() -> None:
        first, *others = [await names(order) for order in list(permutations(servers))[::2]]
        assert sorted(first.values()) == sorted(
            ["b__c", f"{LONG_NAME}1", f"{LONG_NAME}2", "d.e", "d_e", "d/e", "c", "b"]
        )
        assert {"a__b__c": "b__c", "a__d_e": "d_e"}.items() <= first.items()
        assert all(len(name) <= 64 for name in first)
        assert all(one == first for one in others)
        alone = await names(servers[1:2])
        assert alone.items() <= first.items()

    asyncio.run(run())


def test_a_call_and_a_prohibition_by_a_former_name_still_find_their_tool() -> None:
    async def run() -> None:
        asked = server("s", "get.user", "set.user", "set_user")
        manager = allowing()
        async with McpServers([asked], manager):
            assert (await call(manager, "s__get_user")).result == "get.user"
            assert (await call(manager, "s__set_user")).result == "set_user"
        manager = ToolManager(approvals=Approvals([Rule("*", "allow"), Rule("s__set_user", "deny")]))
        async with McpServers([asked], manager):
            results = {one.name: await call(manager, one.name) for one in manager.tools}
        assert sorted(one.is_error for one in results.values()) == [False, True, True]
        manager = ToolManager(approvals=Approvals([Rule("s__get_user", "allow")]))
        async with McpServers([asked], manager):
            assert [(await call(manager, one.name)).is_error for one in manager.tools] == [True] * 3

    asyncio.run(run())


@pytest.mark.req("L2")
def test_a_server_that_prints_what_is_no_message_works_and_is_noticed() -> None:
    async def run() -> None:
        manager = allowing()
        loud = server("loud", "t", noise="Server ready on stdio \x1b[32m{ok}\x1b[0m\n{not json\n[1, 2]\n{}")
        async with McpServers([loud], manager) as servers:
            assert servers.failures == {}
            assert (await call(manager, "loud__t")).result == "t"
            (told,) = servers.notices
            assert told.startswith("the MCP server loud prints what is no message, which is ignored: 'Server")
            assert "\x1b" not in told

    asyncio.run(run())


def test_a_server_offers_the_tools_that_are_selected() -> None:
    async def run() -> None:
        manager = allowing()
        chosen = server("s", "get.one", "get.two", "set.one", tools=("get.*", "nothing"))
        async with McpServers([chosen], manager):
            found = sorted([(await call(manager, one.name)).result for one in manager.tools])
            assert found == ["get.one", "get.two"]

    asyncio.run(run())


class Endpoint(LocalServer):
    """An MCP server over HTTP that wants a header, and repeats it if it is wrong."""

    def __init__(self, wanted: str) -> None:
        super().__init__(lambda _path, _body: Sent(500, b""))
        self.wanted, self.headers = wanted, list[str | None]()
        self._server.RequestHandlerClass = type("Handler", (_McpHandler,), {"endpoint": self})


class _McpHandler(BaseHTTPRequestHandler):
    endpoint: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        given = self.headers["Authorization"]
        self.endpoint.headers.append(given)
        if given != self.endpoint.wanted:
            self._answer(401, {"error": f"{given} is not valid"})
        elif "id" not in asked:
            self._answer(202, None)
        else:
            script = {"tools": [{"name": "t"}]}
            found = hostile_mcp_server.answer(asked["method"], asked.get("params") or {}, script)
            unknown = {"error": {"code": -32601, "message": "unknown method"}}
            self._answer(
                200, {"jsonrpc": "2.0", "id": asked["id"], **({"result": found} if found else unknown)}
            )

    def do_DELETE(self) -> None:
        self._answer(200, None)

    def do_GET(self) -> None:
        self._answer(405, None)

    def _answer(self, status: int, body: Any) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.req("L2", "L4")
def test_a_url_gets_headers_from_the_environment_and_nothing_shows_their_values(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def failures(one: McpServer) -> dict[str, str]:
        manager = allowing()
        async with McpServers([one], manager) as servers:
            if not servers.failures:
                assert (await call(manager, "s__t")).result == "t"
            return servers.failures

    with Endpoint("Bearer tok-1234") as endpoint:
        headers = {"Authorization": "Bearer ${TICKETS_TOKEN}"}
        one = McpServer(name="s", url=f"{endpoint.url}/mcp", headers=headers, start_seconds=20)
        monkeypatch.delenv("TICKETS_TOKEN", raising=False)
        (missing,) = asyncio.run(failures(one)).values()
        assert "needs the environment variable TICKETS_TOKEN, which is not set" in missing
        assert endpoint.headers == []
        monkeypatch.setenv("TICKETS_TOKEN", "tok-1234")
        assert asyncio.run(failures(one)) == {}
        assert set(endpoint.headers) == {"Bearer tok-1234"}
        for wrong in ("tok-99", "tok-99\r\nX-Other: 1", "tok-99\u2028"):
            monkeypatch.setenv("TICKETS_TOKEN", wrong)
            (told,) = asyncio.run(failures(one)).values()
            assert "tok-99" not in told
        assert "tok-" not in f"{one!r}{caplog.text}"


def test_what_a_local_server_is_given_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "tok-1234")
    script = "echo $TOKEN >&2; exit 1"
    one = McpServer(name="s", command="/bin/sh", args=("-c", script), env={"TOKEN": "<${MINE}>"})

    async def failure() -> str:
        async with McpServers([one], allowing()) as servers:
            return servers.failures["s"]

    assert asyncio.run(failure()).endswith("it ended with exit code 1: <${MINE}>")  # without the value


SECRET = "tok-" + "0123456789" * 6
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END KEY-----"


@pytest.mark.req("L2", "L4")
@pytest.mark.parametrize(("secret", "before"), [(SECRET, 0), (SECRET, 90), (KEY, 0)])
def test_what_a_server_prints_is_quoted_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, secret: str, before: int
) -> None:
    monkeypatch.setenv("SECRET_TOK", secret)
    noise = f"{'x' * before}{max(secret.splitlines(), key=len)}"
    (FOLDER[0] / "noise").write_text(noise)
    talk = f"cat {FOLDER[0] / 'noise'}; echo"
    env = {"TOK": "${SECRET_TOK}"}
    loud = McpServer(
        name="loud",
        command="/bin/sh",
        args=("-c", f"{talk}; exec {sys.executable} {PROGRAM} {FOLDER[0] / 'loud.json'}"),
        env=env,
    )
    server("loud", "t")
    slow = McpServer(
        name="slow", command="/bin/sh", args=("-c", f"{talk}; exec sleep 60"), env=env, start_seconds=1
    )

    async def run() -> None:
        async with McpServers([loud, slow], allowing()) as servers:
            assert list(servers.failures) == ["slow"]
            assert "it printed: " in servers.failures["slow"]
            assert len(servers.notices) == 2
            for told in (*servers.notices, servers.failures["slow"]):
                assert "${SECRET_TOK}" in told
                assert parts_of(secret, told) == []
        assert parts_of(secret, caplog.text) == []

    asyncio.run(run())


@pytest.mark.parametrize("after", [0, 300, 399, 400])
def test_the_last_words_of_a_server_are_cut_where_no_secret_is(
    monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setenv("SECRET_TOK", SECRET)
    script = f"printf '%s' $TOK $TOK {'x' * after} >&2; exit 1"
    one = McpServer(name="s", command="/bin/sh", args=("-c", script), env={"TOK": "${SECRET_TOK}"})

    async def failure() -> str:
        async with McpServers([one], allowing()) as servers:
            return servers.failures["s"]

    told = asyncio.run(failure())
    assert parts_of(SECRET, told) == []
    assert ("${SECRET_TOK}" in told) == (after < 400)


def parts_of(secret: str, text: str) -> list[str]:
    """Return the parts of a secret, of six characters, that a text has."""
    return [part for at in range(len(secret) - 5) if (part := secret[at : at + 6]) in text]
