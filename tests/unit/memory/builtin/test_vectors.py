from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from turnstate.memory.builtin.vectors import DISCOUNT, REACH, VectorCache, Vectors, packed  # noqa: E402

RNG = np.random.default_rng(1)


def rows(count: int = 40) -> list[tuple[int, int, bytes]]:
    """Return turns of four sessions, with a gap in the numbers."""
    return [(n + 5 * (n > 20), n // 10, packed(RNG.normal(size=8).tolist())) for n in range(count)]


def test_the_average_with_neighbors_is_what_its_definition_says() -> None:
    given, asked = rows(), RNG.normal(size=8)
    vectors = Vectors(0, 0, 0)
    vectors.extend(given)
    asked = asked / np.linalg.norm(asked)
    matrix = np.array([np.frombuffer(row[2], np.float16).astype(np.float32) for row in given])
    alone, around = matrix @ asked, []
    for number, session, _ in given:
        near = [
            DISCOUNT ** abs(other[0] - number) * matrix[place]
            for place, other in enumerate(given)
            if other[1] == session and abs(other[0] - number) <= REACH
        ]
        around.append(sum(near) @ asked / np.linalg.norm(sum(near)))
    wanted = (np.maximum(alone, 0) / alone.max() + np.maximum(around, 0) / max(around)) / 2
    assert np.allclose(vectors.similarities(asked.tolist()), wanted, atol=1e-5)


def test_vectors_that_come_in_parts_are_the_same() -> None:
    given, asked = rows(), RNG.normal(size=8).tolist()
    whole, parts = Vectors(0, 0, 0), Vectors(0, 0, 0)
    whole.extend(given)
    for start in range(0, len(given), 7):
        parts.extend(given[start : start + 7])
    assert np.allclose(whole.similarities(asked), parts.similarities(asked), atol=1e-6)


def test_the_best_are_found_by_number() -> None:
    given = rows()
    vectors = Vectors(0, 0, 0)
    vectors.extend(given)
    scores = vectors.similarities(RNG.normal(size=8).tolist())
    order = [given[place][0] for place in np.argsort(-scores)]
    assert set(vectors.best(scores, 5)) == set(order[:5])
    assert set(vectors.best(scores, 99)) == set(order)
    known = vectors.of([given[3][0], 999, 22], scores)
    assert list(known) == [given[3][0]]


def test_nothing_is_no_error() -> None:
    empty = Vectors(0, 0, 0)
    empty.extend([])
    scores = empty.similarities([1.0, 0.0])
    assert (len(scores), empty.best(scores, 3), empty.of([1], scores)) == (0, [], {})
    assert packed([0.0, 0.0]) == bytes(4)


def test_the_cache_drops_what_was_not_used_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnstate.memory.builtin.vectors.MAX_BYTES", 3_000)
    cache, made = VectorCache(), {}
    for owner in range(3):
        made[owner] = Vectors(0, 0, 0)
        made[owner].extend(rows())
        cache.put(owner, made[owner])
        cache.get(0)
    assert (cache.get(0), cache.get(1), cache.get(2)) == (made[0], None, made[2])
    cache.clear()
    assert cache.get(0) is None
