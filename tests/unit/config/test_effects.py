"""What a user is told before they approve a file: what is sent where, and no secret."""

from __future__ import annotations

from pathlib import Path

from turnstate.config.effects import effects


def test_a_server_is_shown_with_what_it_is_given_and_without_the_values(tmp_path: Path) -> None:
    remote = {
        "url": "https://mcp.example/mcp",
        "headers": {"Authorization": "Bearer ${OPENAI_API_KEY}", "X-Key": "literal-secret"},
    }
    local = {"command": "uvx", "env": {"TOKEN": "${GH_PAT}", "MODE": "other-secret"}}
    first, second = effects({"mcp": {"tickets": remote, "files": local}}, tmp_path)
    given = "with the headers Authorization, X-Key, sending it your environment variables OPENAI_API_KEY"
    assert first == f"connects to the MCP server tickets: https://mcp.example/mcp, {given}"
    given = "with MODE, TOKEN set, sending it your environment variables GH_PAT"
    assert second == f"starts the MCP server files: uvx, {given}"


def test_variables_for_commands_are_shown(tmp_path: Path) -> None:
    asked = {"commands": {"variables": ["DATABASE_URL", "*"]}}
    assert list(effects(asked, tmp_path)) == [
        "lets commands and hooks read the environment variables DATABASE_URL, *"
    ]
