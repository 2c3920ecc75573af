"""Settings: which value wins, where it comes from, and what an unapproved workspace cannot set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnstate import catalog
from turnstate.agent import Limits
from turnstate.config import NotTrusted, Settings, Trust
from turnstate.config.table import FREE, SETTINGS
from turnstate.errors import HomeUnusable, InputError
from turnstate.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.make()
    return home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


def load(folder: Path, home: Home, **given: dict[str, str]) -> Settings:
    return Settings.load(
        folder, home=home, environment=given.get("environment", {}), flags=given.get("flags")
    )


def approve(folder: Path, home: Home) -> None:
    path = folder / "turnstate.toml"
    Trust(home).approve(path, path.read_bytes())


def test_a_flag_wins_over_the_environment_over_the_workspace_over_the_user(folder: Path, home: Home) -> None:
    def model(**given: dict[str, str]) -> tuple[str | None, str]:
        settings = load(folder, home, **given)
        (row,) = (one for one in settings.given() if one.key == "model")
        return settings.text("model"), row.origin.kind

    assert model() == (None, "default")
    (home.path / "turnstate.toml").write_text('model = "a"')
    assert model() == ("a", "user")
    (folder / "turnstate.toml").write_text('model = "b"')
    assert model() == ("b", "workspace")
    assert model(environment={"TURNSTATE_MODEL": "c"}) == ("c", "environment")
    assert model(environment={"TURNSTATE_MODEL": "c"}, flags={"model": "d"}) == ("d", "flag")
    assert model(environment={"TURNSTATE_MODEL": ""}, flags={"model": ""}) == ("b", "workspace")


def test_an_agents_choice_stands_between_the_environment_and_the_files(folder: Path, home: Home) -> None:
    (folder / "turnstate.toml").write_text('model = "file"')
    assert load(folder, home).chosen("model", "agent") == "agent"
    assert load(folder, home).chosen("model", None) == "file"
    assert load(folder, home, environment={"TURNSTATE_MODEL": "env"}).chosen("model", "agent") == "env"
    assert load(folder, home, flags={"model": "flag"}).chosen("model", "agent") == "flag"


@pytest.mark.req("L4")
def test_an_unapproved_workspace_chooses_only_a_model_by_its_name(folder: Path, home: Home) -> None:
    free = {"model": ["gpt-5", "local"]}
    held = {
        "store": ["sqlite:///agent.db", "memory:", "postgresql://db.example/x", "redis://h", "http://h"],
        "model": ["qwen@http://evil.example/v1"],
        "memory": ["none", "builtin", "builtin:own.db", "builtin:postgresql://e/x", "acme:x"],
        "agent": ["keeper"],
    }
    assert set(held) == set(SETTINGS)
    assert set(free) == set(FREE)
    for key, values in free.items():
        for value in values:
            (folder / "turnstate.toml").write_text(f'{key} = "{value}"')
            assert load(folder, home).text(key) == value
    for key, values in held.items():
        for value in values:
            (folder / "turnstate.toml").write_text(f'{key} = "{value}"')
            with pytest.raises(NotTrusted, match="turnstate config trust"):
                load(folder, home).text(key)
            assert load(folder, home, flags={key: "mine"}).text(key) == "mine"
            approve(folder, home)
            assert load(folder, home).text(key) == value


@pytest.mark.req("L4")
def test_what_runs_is_withheld_until_this_content_is_approved(folder: Path, home: Home) -> None:
    tables = {
        "policy": "[policy]\nsummary_template = 'Obey {summary}'",
        "limits": "[limits]\nrounds = 3",
        "recall": "[recall]\nhits = 1",
        "sizes": "[budget]\nwindow = 9000",
        "hooks": "[[hooks.before_tool]]\ncommand = './run'",
        "commands": "[commands]\nvariables = ['DATABASE_URL']",
        "servers": "[mcp.x]\ncommand = './run'",
        "rules": "[[approve]]\ntool = '*'\ndecision = 'allow'",
    }
    for name, text in tables.items():
        path = folder / "turnstate.toml"
        path.write_text(f"{text}\n")
        with pytest.raises(NotTrusted, match=r"turnstate\.toml says \["):
            getattr(load(folder, home), name)
        assert load(folder, home).text("store") is None  # commands that do not use it work
        approve(folder, home)
        assert getattr(load(folder, home), name)
        path.write_text(f"{text}\n#")  # a byte more
        with pytest.raises(NotTrusted):
            getattr(load(folder, home), name)


@pytest.mark.req("L4")
def test_the_bytes_that_were_hashed_are_the_ones_that_count(folder: Path, home: Home) -> None:
    path = folder / "turnstate.toml"
    path.write_text("[limits]\nrounds = 3")
    approve(folder, home)
    settings = load(folder, home)
    path.write_text("[limits]\nrounds = 9999")  # swapped after the check
    assert settings.limits == Limits(rounds=3)
    with pytest.raises(NotTrusted):
        load(folder, home).limits  # noqa: B018


def test_an_approval_is_bound_to_its_folder_and_can_be_revoked(tmp_path: Path, home: Home) -> None:
    trust, one, other = Trust(home), tmp_path / "a.toml", tmp_path / "b.toml"
    trust.approve(one, b"x")
    assert trust.approves(one, b"x")
    assert not trust.approves(other, b"x")
    assert not trust.approves(one, b"x ")
    trust.approve(one, b"y")
    assert trust.approves(one, b"x")  # both branches of a repository, for instance
    assert Trust(Home(home.path)).approves(one, b"y")
    assert trust.revoke(one)
    assert not trust.approves(one, b"x")
    assert not trust.revoke(one)
    assert (home.path / "trusted.json").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_nothing_counts_of_a_file_that_someone_else_owns(folder: Path, home: Home) -> None:
    path = folder / "turnstate.toml"
    path.write_text('model = "theirs"')
    os.chown(path, 12_345, 12_345)
    with pytest.raises(NotTrusted):
        load(folder, home).text("model")
    approve(folder, home)
    assert load(folder, home).text("model") == "theirs"


def test_tables_of_both_files_add_up(folder: Path, home: Home) -> None:
    (home.path / "turnstate.toml").write_text(
        "[limits]\nrounds = 3\nrepeats = 4\n[mcp.a]\ncommand = 'a'\n[mcp.b]\nurl = 'http://b'\n"
        "[[approve]]\ntool = 'x'\ndecision = 'deny'\n"
    )
    (folder / "turnstate.toml").write_text(
        "[limits]\nrounds = 5\n[mcp.b]\ncommand = 'own'\n[[approve]]\ntool = '*'\ndecision = 'allow'\n"
    )
    approve(folder, home)
    settings = load(folder, home)
    assert settings.limits == Limits(rounds=5, repeats=4)
    assert {name: one.command for name, one in settings.servers.items()} == {"a": "a", "b": "own"}
    assert [one.tool for one in settings.rules] == ["x", "*"]
    origins = {one.key: one.origin.kind for one in settings.given()}
    assert origins["limits.rounds"] == "workspace"
    assert origins["limits.repeats"] == "user"
    assert origins["mcp.a"] == "user"


def test_wrong_files_are_errors_that_say_where(folder: Path, home: Home) -> None:
    cases = {
        'modle = "x"': "turnstate.toml: there is no setting 'modle'; did you mean model?",
        "model = 5": 'turnstate.toml: model must be a string: model = "NAME"',
        "[policy]\nlock_turn = 1": "turnstate.toml: [policy]: there is no setting 'lock_turn'; did you mean "
        "lock_turns?",
        "[policy]\nlock_turns = 0": "turnstate.toml: [policy]: policy.lock_turns = 0 is not allowed: ",
        "policy = 5": "turnstate.toml: policy must be a table: [policy]",
        "[limits]\nrounds = 'x'": "turnstate.toml: [limits]: rounds: expected `int`, got `str`",
        "[mcp.a]": "turnstate.toml: mcp[0]: the MCP server a needs a command or a url, and not both",
        "[mcp.a]\ncommand = 'x'\nname = 'b'": "turnstate.toml: a server has the name of its table, ",
        "[mcp.'a b']\ncommand = 'x'": "turnstate.toml: mcp[0]: 'a b' cannot name a server: ",
        "[[hooks.before_tol]]\ncommand = 'x'": "turnstate.toml: [hooks]: there is no setting 'before_tol'; "
        "did you mean before_tool?",
        "[[hooks.before_tool]]\ncommand = ''": "turnstate.toml: [hooks]: before_tool[0]: a hook needs a ",
        "[[approve]]\ntool = 'x'\ndecision = 'maybe'": "turnstate.toml: approve[0].decision: invalid enum",
        "[keys]\nopenai = 'sk'": "turnstate.toml: keys do not belong in a workspace; set OPENAI_API_KEY",
    }
    for text, message in cases.items():
        (folder / "turnstate.toml").write_text(text)
        with pytest.raises(InputError) as caught:
            load(folder, home)
        assert str(caught.value).startswith(message), (text, str(caught.value))


def test_keys_are_the_users_and_their_values_are_in_no_text(folder: Path, home: Home) -> None:
    path = home.path / "turnstate.toml"
    path.write_text('[keys]\nopenai = "sk-secret"')
    settings = load(folder, home)
    assert settings.key("openai") == "sk-secret"
    assert settings.key("gemini") is None
    assert "sk-secret" not in repr(settings)
    for text in ('[keys]\nopenay = "sk-secret"', '[keys]\nopenai = {x = "sk-secret"}', 'keys = "sk-secret"'):
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            load(folder, home)
        assert "sk-secret" not in str(caught.value)


MODELS = """
[models.acme-chat]
context_window = 32_000
counter = "estimate:llama"
prices = { input = 1.5, output = 6, cached = 0.15 }
aliases = ["acme"]
"""


@pytest.fixture
def _catalog_as_shipped() -> Iterator[None]:
    yield
    catalog._registered.clear()
    catalog.model.cache_clear()


@pytest.mark.usefixtures("_catalog_as_shipped")
def test_models_of_a_file_are_added_to_the_catalog(folder: Path, home: Home) -> None:
    (home.path / "turnstate.toml").write_text(MODELS)
    load(folder, home).register_models()
    found = catalog.model("acme")
    assert (found.known, found.context_window, found.counter) == (True, 32_000, "estimate:llama")
    assert found.prices == catalog.Prices(input=1.5, output=6, cached=0.15)


@pytest.mark.usefixtures("_catalog_as_shipped")
def test_models_of_a_workspace_have_no_effect_until_it_is_approved(folder: Path, home: Home) -> None:
    (folder / "turnstate.toml").write_text(MODELS)
    load(folder, home).register_models()
    assert not catalog.model("acme").known
    approve(folder, home)
    load(folder, home).register_models()
    assert catalog.model("acme").known


def test_a_wrong_model_of_a_file_is_refused(folder: Path, home: Home) -> None:
    for wrong, said in (
        ("[models.x]", "context_window"),
        ("[models.x]\ncontext_window = 0", "models.context_window"),
        ('[models.x]\ncontext_window = 9\ncounter = "abacus"', "abacus"),
        ("[models.x]\ncontext_window = 9\noutput = 3", "output_limit"),
        ("models = 3", "must be a table"),
    ):
        (home.path / "turnstate.toml").write_text(wrong)
        with pytest.raises(InputError, match=said):
            load(folder, home)


def test_a_settings_file_of_the_user_that_everyone_can_write_is_refused(folder: Path, home: Home) -> None:
    file = home.path / "turnstate.toml"
    file.write_text('model = "mine"')
    file.chmod(0o664)
    assert load(folder, home).text("model") == "mine"
    file.chmod(0o666)
    with pytest.raises(HomeUnusable, match="can be written by other users"):
        load(folder, home)
