"""``turnstate mcp`` on a terminal, with a browser that follows redirections, and in a pipe."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_program import command_line, environment, turnstate
from tests.harness.oauth_servers import OAuthServers
from tests.harness.terminal import Terminal
from turnstate.home import Home
from turnstate.tools.logins import FILE, Logins

BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=60).read()"


@pytest.fixture
def servers() -> Iterator[OAuthServers]:
    with OAuthServers().running() as running:
        yield running


@pytest.fixture
def folder(servers: OAuthServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a workspace whose file, approved, names the server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURNSTATE_HOME", str(tmp_path / "home"))
    (tmp_path / "turnstate.toml").write_text(f'[mcp.tickets]\nurl = "{servers.url}"\noauth = true\n')
    told = turnstate("config", "trust", "--yes")
    assert (told.code, "with your OAuth login there" in told.out) == (0, True)
    return tmp_path


def terminal(folder: Path, *arguments: str, browser: str = "") -> Terminal:
    (folder / "browser.py").write_text(BROWSER)
    env = environment(TURNSTATE_HOME=str(folder / "home"), BROWSER=browser or "/bin/true %s")
    return Terminal(command_line("mcp", *arguments), folder=folder, env=env, columns=1000)


@pytest.mark.req("L2")
def test_a_login_on_a_terminal_opens_the_browser_and_a_logout_removes_it(
    folder: Path, servers: OAuthServers
) -> None:
    browser = f"{shlex.quote(sys.executable)} {shlex.quote(str(folder / 'browser.py'))} %s"
    with terminal(folder, "login", "tickets", browser=browser) as screen:
        text = screen.wait("turnstate: tickets: logged in")
        assert screen.wait_for_end() == 0
    assert f"http://127.0.0.1:{servers.authority_port}/authorize?" in text
    assert "Traceback" not in text
    assert [one for one in servers.authority.issued if one in text] == []
    assert Logins(Home(folder / "home")).get(servers.url) is not None
    for argument, code, said in (("tickets", 0, "tickets: logged out"), (servers.url, 1, ": no login")):
        done = turnstate("mcp", "logout", argument)
        assert (done.code, said in done.err) == (code, True)
    assert Logins(Home(folder / "home")).get(servers.url) is None


@pytest.mark.req("L2")
def test_a_refused_login_is_one_line_and_an_interrupted_one_keeps_nothing(
    folder: Path, servers: OAuthServers
) -> None:
    with terminal(folder, "login", "tickets") as screen:
        screen.wait("/authorize?")
        screen.type("\x03")
        assert screen.wait_for_end() == 130
        assert "Traceback" not in screen.text
    servers.authority.refuses = True
    browser = f"{shlex.quote(sys.executable)} {shlex.quote(str(folder / 'browser.py'))} %s"
    with terminal(folder, "login", "tickets", browser=browser) as screen:
        text = screen.wait("turnstate: the login was refused: access_denied")
        assert screen.wait_for_end() == 1
    assert "Traceback" not in text
    assert not (folder / "home" / FILE).exists()


@pytest.mark.req("L2")
def test_a_pipe_an_unknown_name_and_a_server_that_is_not_approved_start_no_login(
    folder: Path, servers: OAuthServers
) -> None:
    piped = turnstate("mcp", "login", "tickets")
    assert (piped.code, "stdin is not a terminal" in piped.err) == (2, True)
    unknown = turnstate("mcp", "login", "tickts")
    assert (unknown.code, "did you mean tickets" in unknown.err) == (2, True)
    assert turnstate("config", "trust", "--revoke").code == 0
    with terminal(folder, "login", "tickets") as screen:
        assert "turnstate config trust" in screen.wait("you have not approved")
        assert screen.wait_for_end() == 2
    assert servers.requests == []
