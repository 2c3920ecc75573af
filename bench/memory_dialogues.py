"""Long dialogues with questions, read from the folder of TURNSTATE_DATA or from ``../shared/data``.

The dialogues of LoCoMo (CC BY-NC 4.0) are for evaluation and not part of Turnstate. A question names the
turns that contain the evidence for its answer, so recall needs no judge: it is the share of those turns among
the first k.
"""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from turnstate import Message

from .peer_process import ROOT

FILE = "locomo-dev.json"
KINDS = {1: "several turns", 2: "time", 3: "inference", 4: "one turn"}
"""The categories of questions that have an answer in the dialogue."""

STYLES = ("names", "roles")
"""How two speakers become messages: both as the user, by name, or one as user and one as assistant."""


class Query(NamedTuple):
    """A question, its category, and the turns that contain the evidence."""

    text: str
    kind: int
    evidence: frozenset[str]


class Dialogue(NamedTuple):
    """Sessions of turns between two people, and questions about them."""

    speakers: tuple[str, str]
    sessions: list[list[dict[str, str]]]
    queries: list[Query]

    def messages(self, session: int, style: str) -> list[Message]:
        """Return a session as messages; each message has the id of its turn."""
        return [self._message(turn, style) for turn in self.sessions[session]]

    def _message(self, turn: dict[str, str], style: str) -> Message:
        text = turn["text"] + (f" [image: {turn['caption']}]" if turn["caption"] else "")
        if style == "names":
            return Message.user(f"{turn['speaker']}: {text}", id=turn["id"], timestamp=turn["time"])
        speak = Message.user if turn["speaker"] == self.speakers[0] else Message.assistant
        return speak(text, id=turn["id"], timestamp=turn["time"])


def dialogues() -> list[Dialogue]:
    """Return the dialogues, or an empty list if the file does not exist."""
    folder = data_folder(FILE)
    if folder is None:
        return []
    return [_dialogue(one) for one in json.loads((folder / FILE).read_text("utf-8"))]


def data_folder(file: str) -> Path | None:
    """Return the folder that has a file of data, or None."""
    folder = os.environ.get("TURNSTATE_DATA")
    for path in [Path(folder)] if folder else [ROOT.parent / "shared" / "data", Path("../shared/data")]:
        if (path / file).is_file():
            return path
    return None


def _dialogue(document: dict[str, Any]) -> Dialogue:
    talk = document["conversation"]
    numbers = sorted(int(name.split("_")[1]) for name in talk if re.fullmatch(r"session_\d+", name))
    sessions = [_session(talk[f"session_{n}"], talk[f"session_{n}_date_time"]) for n in numbers]
    known = {turn["id"] for session in sessions for turn in session}
    queries = list[Query]()
    for entry in document["qa"]:
        named = {
            f"D{int(a)}:{int(b)}" for text in entry.get("evidence") or [] for a, b in _TURN.findall(text)
        }
        if entry["category"] in KINDS and named & known:
            queries.append(Query(entry["question"], entry["category"], frozenset(named & known)))
    return Dialogue((talk["speaker_a"], talk["speaker_b"]), sessions, queries)


_TURN = re.compile(r"D:?(\d+):(\d+)")


def _session(turns: list[dict[str, Any]], when: str) -> list[dict[str, str]]:
    time = datetime.strptime(when, "%I:%M %p on %d %B, %Y").strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        {
            "id": turn["dia_id"],
            "speaker": turn["speaker"],
            "text": turn["text"],
            "caption": turn.get("blip_caption") or "",
            "time": time,
        }
        for turn in turns
    ]
