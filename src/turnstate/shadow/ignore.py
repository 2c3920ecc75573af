"""The user's ignore rules, evaluated by git without opening the user's repository.

`check-ignore` runs on our own bare repository with the user's folder as its work tree. So `.gitignore`
files apply even outside of any repository, and those above the work tree apply if it is a subfolder of a
repository. `info/exclude` and `core.excludesFile` are read as plain text and passed in one file, in which
later lines win, as they do in git. The `info/exclude` of a nested repository applies below it. A file that
the user's repository tracks is never ignored, whatever the rules say.

The rules of another snapshot can apply as well: a restore may replace rules, and files that either set of
rules ignores stay out of snapshots. The other rules are written to a mirror, a folder of our own that holds
only rules and empty folders, and git evaluates paths in the mirror instead of the work tree.
"""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from .. import folder_gate
from ..errors import CheckpointsDamaged, GitFailed, WorkTreeRefused
from .contents import RULES as KEPT_RULES
from .contents import listing, references, split
from .git import BLOB, Git, object_id
from .protected import UnreadableFile, read_regular

RULES = b".gitignore"

MAX_RULES_BYTES = 4 << 20  # read from one file
_MAX_REFERENCE_BYTES = 4096  # a `.git` file holds one path
_SPECIAL = {stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK}
_SECTION = re.compile(rb'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"(?:[^"\\]|\\.)*")?\s*\]')
_INCLUDED = re.compile(rb'\s*path\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^#;]*))', re.IGNORECASE)


class _RuleScope(NamedTuple):
    """A folder that rules are relative to, and where it is relative to the work tree."""

    root: Path
    within: bytes  # the path of the root in the work tree, with a slash at its end
    above: bytes  # the path of the work tree in the root, with a slash at its end
    excludes: Path
    mirrored: bool = False


class Rules:
    """The ignore rules of a work tree; create an instance with `opened`."""

    def __init__(self, git: Git, work_tree: Path, folder: Path, *, alone: bool = False) -> None:
        self._git = git
        self._work_tree = work_tree
        self._folder = folder
        root = work_tree if alone else enclosing_repository(work_tree) or work_tree
        self.users = _users_rules(git, root)
        """The file with the user's rules for all repositories."""
        self._general = _read_plain_file(self.users, MAX_RULES_BYTES)
        above = os.fsencode(work_tree.relative_to(root))
        self._scopes = [self._scope(root, b"", b"" if above == b"." else above + b"/")]
        self.elsewhere = set[bytes]()
        """Paths that only the rules of another snapshot ignore."""
        self._refuse_unreadable(root)
        self._tracked = _tracked(git, root)

    @classmethod
    @contextmanager
    def opened(cls, git: Git, work_tree: Path, *, force: bool = False) -> Iterator[Rules]:
        """Read the current rules. With ``force``, an ignored work tree uses only the rules inside it."""
        with TemporaryDirectory(dir=git.folder, prefix="rules-") as folder:
            rules = cls(git, work_tree, Path(folder))
            if rules.ignores_the_work_tree():
                if not force:
                    raise WorkTreeRefused(
                        f"{work_tree} is ignored by the rules of {rules._scopes[0].root}, so nothing in it "
                        "would be kept; force it to use only the rules inside it"
                    )
                rules = cls(git, work_tree, Path(folder), alone=True)
            yield rules

    def ignores_the_work_tree(self) -> bool:
        """Return True if the enclosing repository ignores the whole work tree."""
        outer = self._scopes[0]
        return bool(outer.above) and bool(self._ask(outer, [b"./" + outer.above.rstrip(b"/")]))

    def is_rules(self, path: bytes) -> bool:
        """Return True if a file of the work tree holds rules."""
        return holds_rules(self._work_tree, path, self.users)

    def also(self, files: Mapping[bytes, bytes], *, instead: bool = False) -> None:
        """Also apply the rules that these files of the work tree held at another time.

        With ``instead`` only they apply, and `ignored` accepts paths that lead through links by now.
        """
        scope, mirror = self._scopes[0], self._folder / str(len(os.listdir(self._folder)))
        inside = os.path.join(os.fsencode(mirror), scope.above)
        os.makedirs(inside)
        folder = self._work_tree
        while folder != scope.root:
            folder = folder.parent
            rules = folder / os.fsdecode(RULES)
            if rules.is_file() and not rules.is_symlink():
                (mirror / rules.relative_to(scope.root)).write_bytes(_read_plain_file(rules, MAX_RULES_BYTES))
        for path, data in files.items():
            if split(path)[1] == RULES:
                os.makedirs(os.path.join(inside, split(path)[0]), exist_ok=True)
                with open(os.path.join(inside, path), "wb") as file:
                    file.write(data)
        users = next((files[one] for one in files if split(one)[1] != RULES), self._general)
        mirrored = self._scope(mirror, b"", scope.above, rules=users + b"\n" + _own_rules(scope.root))
        self._scopes = [mirrored] if instead else [*self._scopes, mirrored]

    def enter(self, path: bytes) -> None:
        """Apply the rules of a nested repository to the paths below it."""
        root = self._work_tree / os.fsdecode(path)
        if root == self._scopes[0].root or not (own := _own_rules(root).strip()):
            return
        for scope in [one for one in self._scopes if not one.within]:
            inside = scope.root / os.fsdecode(scope.above + path)
            if scope.mirrored:
                inside.mkdir(parents=True, exist_ok=True)
            rules = self._general + b"\n" + own
            self._scopes.append(self._scope(inside, path + b"/", b"", rules=rules))

    def ignored(self, paths: Sequence[bytes], folders: Collection[bytes] = ()) -> set[bytes]:
        """Return the paths that are ignored; no path may lead through a link.

        A rule for folders only applies to the folders in the work tree or, in a mirror, to ``folders``.
        """
        found, elsewhere = set[bytes](), set[bytes]()
        for scope in self._scopes:
            # A leading "./" keeps git from reading a path that begins with a colon as a pathspec.
            before, cut = b"./" + scope.above, len(scope.within)
            asked = [before + path[cut:] for path in paths if path.startswith(scope.within)]
            if scope.mirrored:
                for path in folders:
                    if path.startswith(scope.within):
                        _make(os.path.join(os.fsencode(scope.root), before + path[cut:]))
            names = {scope.within + name[len(before) :] for name in self._ask(scope, asked)}
            (elsewhere if scope.mirrored else found).update(names)
        self.elsewhere |= {path for path in elsewhere - found if not self._is_tracked(path)}
        return {path for path in found | elsewhere if not self._is_tracked(path)}

    def _is_tracked(self, path: bytes) -> bool:
        """Return True if the user's repository tracks a file, or anything in a folder."""
        name = self._scopes[0].above + path
        for wanted, below in ((name, False), (name + b"/", True)):
            place = bisect_left(self._tracked, wanted)
            found = self._tracked[place] if place < len(self._tracked) else b""
            if found.startswith(wanted) if below else found == wanted:
                return True
        return False

    def _ask(self, scope: _RuleScope, names: list[bytes]) -> list[bytes]:
        if not names:
            return []
        said = self._git.run(
            *("check-ignore", "--stdin", "-z", "--no-index"),
            input=b"".join(name + b"\0" for name in names),
            work_tree=scope.root,
            settings={"core.excludesFile": str(scope.excludes)},
            fine=(0, 1),
        )
        return said.split(b"\0")[:-1]

    def _scope(self, root: Path, within: bytes, above: bytes, *, rules: bytes | None = None) -> _RuleScope:
        excludes = self._folder / str(len(os.listdir(self._folder)))
        excludes.write_bytes(self._general + b"\n" + _own_rules(root) if rules is None else rules)
        return _RuleScope(root, within, above, excludes, mirrored=self._folder in root.parents)

    def _refuse_unreadable(self, root: Path) -> None:
        """Raise WorkTreeRefused if git would hang on the rules of the work tree or a folder above it."""
        folder = self._work_tree
        while True:
            if not is_readable_rules(folder / os.fsdecode(RULES)):
                raise WorkTreeRefused(f"{folder / os.fsdecode(RULES)} is not a file; remove it")
            if folder == root:
                return
            folder = folder.parent


def holds_rules(work_tree: Path, path: bytes, users: Path) -> bool:
    """Return True if a file of the work tree is a `.gitignore`, or the user's rules for all repositories."""
    return split(path)[1] == RULES or work_tree / os.fsdecode(path) == users


def enclosing_repository(folder: Path) -> Path | None:
    """Return the top folder of the repository that a folder is in, or None."""
    return next((one for one in (folder, *folder.parents) if _git_folder(one)), None)


def _tracked(git: Git, root: Path) -> list[bytes]:
    """Return the sorted paths that the user's repository tracks; none if its index cannot be read."""
    folder = _git_folder(root)
    if folder is None or not (folder / "index").is_file():
        return []
    try:
        said = git.run("ls-files", "--cached", "-z", work_tree=root, index=folder / "index")
    except GitFailed:
        return []
    return sorted(said.split(b"\0")[:-1])


def is_readable_rules(path: Path) -> bool:
    """Return True if git can read rules at a path or skips it; False if git would block on it."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)


def _users_rules(git: Git, root: Path) -> Path:
    """Return the file that `core.excludesFile` names, or git's default."""
    repository = _git_folder(root)
    _refuse_endless_configuration(repository)
    named = git.users_path("core.excludesFile", at=root, repository=repository)
    return named or _users_folder() / "ignore"


def _users_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "git"


def _refuse_endless_configuration(repository: Path | None) -> None:
    """Raise WorkTreeRefused if git's configuration leads to a FIFO or a device, on which git would hang."""
    waiting = [Path("/etc/gitconfig"), _users_folder() / "config", Path(os.path.expanduser("~/.gitconfig"))]
    if repository is not None:
        waiting += [repository / "commondir", repository / "config.worktree"]
        waiting.append(_common_folder(repository) / "config")
    seen = set[str]()
    while waiting:
        path = waiting.pop()
        real = os.path.realpath(path)
        if real in seen:  # files may include each other
            continue
        seen.add(real)
        if _is_endless(path):
            raise WorkTreeRefused(
                f"git's configuration leads to {path}, which is not a file; "
                "remove it, or the line that includes it"
            )
        waiting += _included(path)


def _is_endless(path: Path) -> bool:
    try:
        status = path.stat()
        return stat.S_IFMT(status.st_mode) in _SPECIAL and not os.path.samestat(status, os.stat(os.devnull))
    except (OSError, ValueError):
        return False


def _included(path: Path) -> Iterator[Path]:
    """Yield the files that a git configuration file includes, regardless of conditions."""
    inside = False
    for line in _read_plain_file(path, MAX_RULES_BYTES).replace(b"\\\n", b"").splitlines():
        section = _SECTION.match(line)
        if section:
            inside = section[1].lower() in (b"include", b"includeif")
        if inside and (named := _INCLUDED.match(line, section.end() if section else 0)):
            value = re.sub(rb"\\(.)", rb"\1", named[1] if named[1] is not None else named[2].rstrip())
            yield path.parent / os.path.expanduser(os.fsdecode(value))


def _own_rules(root: Path) -> bytes:
    """Return the `info/exclude` of the repository with this top folder."""
    folder = _git_folder(root)
    if folder is None:
        return b""
    return _read_plain_file(_common_folder(folder) / "info" / "exclude", MAX_RULES_BYTES)


def _common_folder(folder: Path) -> Path:
    """Return the folder that a worktree shares with its main repository."""
    return folder / os.fsdecode(_read_plain_file(folder / "commondir", _MAX_REFERENCE_BYTES).strip())


def _git_folder(top: Path) -> Path | None:
    """Return the git folder of a repository: `.git`, or the one that a `.git` file names."""
    path = top / ".git"
    reference = _read_plain_file(path, _MAX_REFERENCE_BYTES)
    if reference.startswith(b"gitdir:"):
        path = top / os.fsdecode(reference.removeprefix(b"gitdir:").strip())
    return path if (path / "HEAD").is_file() else None


def _make(folder: bytes) -> None:
    with suppress(OSError):  # the path is too long; rules for folders do not apply to it
        os.makedirs(folder, exist_ok=True)


def _read_plain_file(path: Path, most: int) -> bytes:
    """Return up to ``most`` bytes of a regular file; nothing if it is missing or not a regular file."""
    try:
        with folder_gate.opened(path, folder_gate.READING | os.O_NONBLOCK) as file:
            return os.read(file, most) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    except (OSError, ValueError):
        return b""


def other_rules(git: Git, work_tree: Path, base: str, *, most: int, trusted: bool = False) -> dict[str, str]:
    """Return the snapshots whose rules still apply, by their tags.

    After a restore that replaced rules, the earlier rules also apply until the user changes rules: files
    that they ignore were never meant to be kept. With ``trusted``, the rules in the work tree are assumed
    to be those that the restore wrote.
    """
    found = {name: commit for name, commit in references(git, KEPT_RULES).items() if commit}
    if not found or trusted:
        return found
    try:
        then = listing(git, base)
    except CheckpointsDamaged:
        return found
    top = os.fsencode(work_tree)
    for folder in (b"", *then.folders):
        path = os.path.join(folder, RULES)
        try:
            now = object_id(BLOB, read_regular(os.path.join(top, path), most=most)[0])
        except (OSError, UnreadableFile):
            now = ""
        entry = then.files.get(path)
        if now != (entry.blob if entry is not None and not entry.link else ""):
            return {}
    return found


def rules_of(git: Git, commit: str, rules: Rules) -> dict[bytes, bytes]:
    """Return the files of a snapshot that hold ignore rules, with their content."""
    return {
        path: git.objects.read(entry.blob)
        for path, entry in listing(git, commit).files.items()
        if not entry.link and rules.is_rules(path)
    }
