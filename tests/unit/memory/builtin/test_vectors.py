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
    similar = vectors.similarities(asked.tolist())
    assert np.allclose(similar.alone, np.maximum(alone, 0) / alone.max(), atol=1e-5)
    assert np.allclose(similar.around, np.maximum(around, 0) / max(around), atol=1e-5)


def test_vectors_that_come_in_parts_are_the_same() -> None:
    given, asked = rows(), RNG.normal(size=8).tolist()
    whole, parts = Vectors(0, 0, 0), Vectors(0, 0, 0)
    whole.extend(given)
    for start in range(0, len(given), 7):
        parts.extend(given[start : start + 7])
    assert np.allclose(whole.similarities(asked).alone, parts.similarities(asked).alone, atol=1e-6)
    assert np.allclose(whole.similarities(asked).around, parts.similarities(asked).around, atol=1e-6)


def test_the_best_are_found_by_number() -> None:
    given = rows()
    vectors = Vectors(0, 0, 0)
    vectors.extend(given)
    similar = vectors.similarities(RNG.normal(size=8).tolist())
    order = [given[place][0] for place in np.argsort(-(similar.alone + similar.around))]
    assert set(similar.best(5)) == set(order[:5])
    assert set(similar.best(99)) == set(order)
    known = similar.of([(number, given[3][2]) for number in (given[3][0], 999, 22)])
    assert list(known) == [given[3][0]]


def test_the_nearest_passage_counts_for_a_turn_and_the_whole_does_not() -> None:
    def vector(degrees: float) -> list[float]:
        return [float(np.cos(np.radians(degrees))), float(np.sin(np.radians(degrees)))]

    given = {0: [60], 1: [0, 75, 80], 2: [90, 85, 30], 3: [91, 120]}  # of a turn, then of its passages
    data = {number: packed(*map(vector, degrees)) for number, degrees in given.items()}
    vectors = Vectors(0, 0, 0)
    vectors.extend([(number, number, data[number][:4]) for number in given])
    similar = vectors.similarities(vector(0))
    nearest = {0: 60, 1: 75, 2: 30, 3: 90}
    for number, found in similar.of([*data.items(), (1, b"odd"), (2, b"")]).items():
        alone = np.cos(np.radians(nearest[number])) / np.cos(np.radians(30))
        assert found == pytest.approx((alone + similar.around[number]) / 2, abs=1e-3), number


def test_nothing_is_no_error() -> None:
    empty = Vectors(0, 0, 0)
    empty.extend([])
    similar = empty.similarities([1.0, 0.0])
    assert (len(similar.alone), similar.best(3), similar.of([(1, bytes(4))])) == (0, [], {})
    assert packed([0.0, 0.0]) == bytes(4)
    other = Vectors(0, 0, 0)
    other.extend(rows())
    similar = other.similarities([1.0, 0.0])  # of another model
    assert (similar.best(3), similar.of([(1, bytes(4))])) == ([], {})


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
