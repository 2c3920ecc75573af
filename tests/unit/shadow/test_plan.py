"""The plan of a restore reaches its target, does nothing without need, and leaves what must be left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnstate.shadow.contents import parents
from turnstate.shadow.plan import RestorePlan, newer, plan
from turnstate.shadow.values import Changes, FileEntry, KeptPath, Listing

entries = st.builds(FileEntry, st.booleans(), st.sampled_from([0o644, 0o600]), st.sampled_from("xyz"))
paths = st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=3).map(b"/".join)


@st.composite
def listings(draw: st.DrawFn) -> Listing:
    files = dict[bytes, FileEntry]()
    folders = dict[bytes, int]()
    for path in draw(st.lists(paths, max_size=6)):
        if path not in folders and not files.keys() & set(parents(path)) and path not in files:
            files[path] = draw(entries)
            folders |= {folder: draw(st.sampled_from([0o755, 0o700])) for folder in parents(path)}
    return Listing(files, folders)


def done(live: Listing, steps: RestorePlan) -> Listing:
    """Do what a plan says, in its order, as a file system would."""
    files, folders = dict(live.files), dict(live.folders)
    for removal in steps.removals:
        assert files.pop(removal.path) == removal.before
    for folder in steps.emptied:
        if not any(path.startswith(folder + b"/") for path in (*files, *folders)):
            del folders[folder]
    for folder in steps.folders:
        assert folder not in files
        assert not files.keys() & set(parents(folder))
        folders[folder] = 0o700
    for put in steps.puts:
        assert put.path not in folders
        assert set(parents(put.path)) <= folders.keys()
        assert files.get(put.path) == put.before
        files[put.path] = put.entry
    for mode in steps.modes:
        files[mode.path] = files[mode.path]._replace(mode=mode.mode)
    for mode in steps.folder_modes:
        folders[mode.path] = mode.mode
    return Listing(files, folders)


@given(live=listings(), target=listings())
def test_a_hard_plan_ends_with_the_target(live: Listing, target: Listing) -> None:
    unwanted = {path for path in live.folders if path not in target.folders}
    steps = plan(live, target, unwanted=newer(live, target), unwanted_folders=unwanted)
    assert done(live, steps) == target


@given(live=listings(), target=listings())
def test_a_soft_plan_has_all_of_the_target_and_keeps_what_is_not_in_its_way(
    live: Listing, target: Listing
) -> None:
    after = done(live, plan(live, target))
    assert {path: after.files[path] for path in target.files} == target.files
    in_the_way = {
        path for path in live.files if path in target.folders or target.files.keys() & set(parents(path))
    }
    assert after.files.keys() == target.files.keys() | (live.files.keys() - in_the_way)


@given(live=listings())
def test_nothing_is_done_where_nothing_differs(live: Listing) -> None:
    assert not plan(live, live)


def test_a_place_that_must_not_be_taken_is_left_as_it_is() -> None:
    live = Listing({b"a/b": FileEntry(False, 0o644, "x")}, {b"a": 0o755})
    assert not plan(live, Listing({b"a": FileEntry(False, 0o644, "y")}, {}), untouchable={b"a"})


def test_what_was_left_alone_did_not_change() -> None:
    live = Listing({b"a": FileEntry(False, 0o644, "x"), b"b": FileEntry(False, 0o644, "x")}, {})
    target = Listing({b"a": FileEntry(False, 0o644, "y"), b"c": FileEntry(False, 0o644, "x")}, {})
    steps = plan(live, target, unwanted={b"b"})
    assert steps.changes([]) == Changes(added=(b"c",), modified=(b"a",), deleted=(b"b",))
    assert steps.changes([KeptPath(b"a", ""), KeptPath(b"b", "")]) == Changes(added=(b"c",))
