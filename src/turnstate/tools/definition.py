"""Tools: functions that a model can call.

    @tool
    def forecast(city: str, days: int = 1) -> str:
        \"\"\"Return the weather forecast.

        Args:
            city: The name of the city.
        \"\"\"

The JSON schema of the arguments comes from the type hints, their descriptions from the docstring. Arguments
are checked before the function runs; the model gets an error message that it can act on. A parameter of type
`ToolContext` is not an argument: it receives the call, its session and its workspace.

A plain function runs in a thread, so it may block; a coroutine function runs in the event loop. A thread
cannot be stopped. A plain function that is canceled or exceeds its time limit gets a second to finish, so a
short one, such as a write, is never still running when the next step begins. A longer one keeps running, and
its result is discarded.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints, overload

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from ..conversation.tools import ToolOrigin
from ..errors import InputError
from ..message import ToolCallRequest
from ..toolspec import ToolSpec

if TYPE_CHECKING:
    from ..conversation.edits import LineTracking
    from ..session import Session
    from .workspace import WorkspaceFiles

BUILTIN, CUSTOM = ToolOrigin("builtin"), ToolOrigin("custom")

GRACE = 1.0
"""Seconds that a function in a thread gets to finish when it is canceled."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
"""Matches names that every provider accepts."""

_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_ARGUMENT = re.compile(r"^\s*(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


class BadArguments(InputError):
    """The arguments of a call do not match the tool's schema."""


class ToolContext(Struct, frozen=True, kw_only=True):
    """What a tool can use while it runs: the call, the session, the workspace and its line tracking.

    ``variables`` are names of environment variables that commands get besides the usual ones.
    """

    call: ToolCallRequest
    session: Session | None = None
    workspace: WorkspaceFiles | None = None
    tracking: LineTracking | None = None
    variables: tuple[str, ...] = ()


Check = Callable[[dict[str, Any]], Any]
"""Converts arguments, or raises `BadArguments`; it may be a coroutine function."""
Run = Callable[[Any, ToolContext], Awaitable[Any]]


class Tool:
    """A tool: its definition, and the function that does the work.

    ``idempotent`` says that running it twice does no harm, so an interrupted call may be run again.
    ``changes_files`` says that it writes to the workspace. ``path_of`` names the arguments that are paths,
    by which calls can be approved.
    """

    def __init__(
        self,
        spec: ToolSpec,
        run: Run,
        *,
        check: Check | None = None,
        origin: ToolOrigin = CUSTOM,
        idempotent: bool = False,
        changes_files: bool = False,
        timeout: float | None = None,
        path_of: tuple[str, ...] = (),
        function: Callable[..., Any] | None = None,
        former_name: str = "",
    ) -> None:
        if not _NAME(spec.name):
            raise InputError(
                f"{spec.name!r:.80} cannot be the name of a tool: use 1 to 64 letters, digits, _ and -"
            )
        self.spec, self.origin, self.idempotent = spec, origin, idempotent
        self.changes_files, self.timeout, self.path_of = changes_files, timeout, path_of
        self.former_name = former_name
        """The name that it had in earlier versions, by which stored calls and rules still find it."""
        self._run, self._check, self._function = run, check, function
        self.__doc__ = spec.description

    @property
    def name(self) -> str:
        """The name by which a model calls it."""
        return self.spec.name

    @property
    def digest(self) -> str:
        """A digest of the definition that a model and a user see."""
        return hashlib.blake2b(msgspec.json.encode(self.spec), digest_size=16).hexdigest()

    async def checked(self, args: dict[str, Any]) -> Any:
        """Return the arguments as the function expects them; raise `BadArguments` if they do not match."""
        found = self._check(args) if self._check else args
        return await found if inspect.isawaitable(found) else found

    def paths(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the paths that a call names, without detours such as ``a/../b``."""
        given = (args.get(name) for name in self.path_of)
        return tuple(posixpath.normpath(path) for path in given if isinstance(path, str))

    async def run(self, args: dict[str, Any], context: ToolContext) -> Any:
        """Check the arguments and run the tool."""
        return await self.run_checked(await self.checked(args), context)

    async def run_checked(self, args: Any, context: ToolContext) -> Any:
        """Run the tool with arguments that `checked` returned."""
        return await self._run(args, context)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the decorated function itself."""
        if self._function is None:
            raise TypeError(f"the tool {self.name} is not a Python function; run it with a ToolManager")
        return self._function(*args, **named)

    def __repr__(self) -> str:
        return f"<Tool {self.name} ({self.origin.kind})>"


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    changes_files: bool = False,
    timeout: float | None = None,
    path_of: tuple[str, ...] = (),
    origin: ToolOrigin = CUSTOM,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    changes_files: bool = False,
    timeout: float | None = None,
    path_of: tuple[str, ...] = (),
    origin: ToolOrigin = CUSTOM,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool; use it as ``@tool`` or as ``@tool(idempotent=True, …)``."""

    def made(function: Callable[..., Any]) -> Tool:
        signature = _Signature(function)
        spec = ToolSpec(
            name=name or function.__name__,
            description=signature.description if description is None else description,
            input_schema=signature.schema,
        )
        return Tool(
            spec,
            signature.run,
            check=signature.checked,
            origin=origin,
            idempotent=idempotent,
            changes_files=changes_files,
            timeout=timeout,
            path_of=path_of,
            function=function,
        )

    return made if function is None else made(function)


class _Signature:
    """The parameters of a function as a struct, which checks arguments and has a JSON schema."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._name = function, getattr(function, "__name__", repr(function))
        self.description, documented = _documentation(inspect.getdoc(function) or "")
        self._context = ""
        try:
            hints = get_type_hints(function, localns={"ToolContext": ToolContext}, include_extras=True)
        except NameError as error:
            raise InputError(f"the type hints of {self._name} cannot be read: {error}") from None
        fields = list[Any]()
        for parameter in inspect.signature(function).parameters.values():
            if hints.get(parameter.name) is ToolContext:
                self._context = parameter.name
            else:
                fields.append(self._field(parameter, hints, documented))
        try:
            self._struct = msgspec.defstruct(self._name, fields, kw_only=True, forbid_unknown_fields=True)
            self.schema = _schema(self._struct)
        except TypeError as error:
            raise InputError(f"{self._name} cannot be a tool: {error}") from None

    def _field(
        self, parameter: inspect.Parameter, hints: Mapping[str, Any], documented: Mapping[str, str]
    ) -> tuple[str, Any, Any]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InputError(f"{self._name} cannot be a tool: {parameter} is not a single named parameter")
        if parameter.name not in hints:
            raise InputError(
                f"{self._name} cannot be a tool: its parameter {parameter.name} has no type hint"
            )
        hint = hints[parameter.name]
        if text := documented.get(parameter.name):
            hint = Annotated[hint, Meta(description=text)]
        default = NODEFAULT if parameter.default is parameter.empty else parameter.default
        return parameter.name, hint, default

    def checked(self, args: dict[str, Any]) -> Any:
        """Convert arguments; accept "3" for 3, as some models write it."""
        try:
            return msgspec.convert(args, self._struct, strict=False)
        except msgspec.ValidationError as error:
            raise BadArguments(f"invalid arguments: {error}") from None

    async def run(self, args: Struct, context: ToolContext) -> Any:
        named = msgspec.structs.asdict(args)
        if self._context:
            named[self._context] = context
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**named)
        work = asyncio.ensure_future(asyncio.to_thread(self._called, named))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work], timeout=GRACE)
            if work.done() and not work.cancelled():
                work.exception()  # retrieved, so that asyncio does not report it
            raise

    def _called(self, named: dict[str, Any]) -> Any:
        try:
            return self._function(**named)
        except SystemExit as left:  # otherwise it would end the event loop, and the program with it
            raise RuntimeError(f"the tool ended with sys.exit({left.code!r:.200})") from None


def _schema(struct: type[Struct]) -> dict[str, Any]:
    """Return the schema of a struct as one object; only types that contain themselves remain references."""
    _, components = msgspec.json.schema_components([struct])
    schema = dict(components.pop(struct.__name__))
    recursive = dict[str, Any]()

    def inlined(value: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [inlined(item, inside) for item in value]
        if not isinstance(value, dict):
            return value
        if isinstance(reference := value.get("$ref"), str):
            name = reference.rpartition("/")[2]
            if name in inside:
                recursive[name] = components[name]
                return {"$ref": f"#/$defs/{name}"}
            return inlined(
                {**components[name], **{k: v for k, v in value.items() if k != "$ref"}}, (*inside, name)
            )
        return {key: inlined(item, inside) for key, item in value.items() if key != "title"}

    flat: dict[str, Any] = inlined(schema, ())
    if recursive:
        flat["$defs"] = recursive
    return flat


def _documentation(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description of the function and of each argument (an ``Args:`` section)."""
    lead, described, section, current, margin = list[str](), dict[str, str](), "", "", 0
    for line in text.splitlines():
        if found := _SECTION.match(line):
            section = found[1]
        elif not section:
            lead.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            indented = len(line) - len(line.lstrip())
            if (argument := _ARGUMENT.match(line)) and (not current or indented <= margin):
                current, margin = argument[1], indented
                described[current] = argument[2].strip()
            elif current:
                described[current] = f"{described[current]} {line.strip()}".strip()
    return "\n".join(lead).strip(), described
