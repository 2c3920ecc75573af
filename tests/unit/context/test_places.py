"""Messages are found by id, wherever the list grew, and no more of it is read than it takes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from scripts import talk

from turnstate import Message
from turnstate.context.tally import Places


class Watched(list[Message]):
    """A list that tells which of its places were read."""

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__(messages)
        self.read: list[int] = []

    def __getitem__(self, index: int) -> Message:  # type: ignore[override]
        self.read.append(index)
        return super().__getitem__(index)


def test_every_message_is_found_whatever_is_asked_first_and_however_the_list_grew() -> None:
    messages = talk("U " * 40)
    for seed in range(50):
        rng = Random(seed)
        items = messages[: rng.randrange(41)]
        places = Places(items, rng.choice((0, len(items))))
        for _ in range(30):
            items += messages[len(items) : len(items) + rng.randrange(3)]
            wanted = rng.randrange(40)
            assert places.of(messages[wanted].id) == (wanted if wanted < len(items) else None)


def test_each_id_is_read_once_and_from_the_newest_back_as_far_as_it_takes() -> None:
    items = Watched(talk("U " * 10))
    places = Places(items, 10)
    assert places.of("m7") == 7
    assert items.read == [9, 8, 7]
    assert places.of("m8") == 8
    assert places.of("unknown") is None
    assert items.read == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
