"""A chat: one session at a time, the agent that answers in it, and the commands that act on it.

A chat is independent of the terminal: a `ChatView` shows what happens and asks the user, and the loop around
it reads lines and calls `handle`. A chat holds the lease of its session, so a second terminal is warned and
may look on or take over. Every message is in the store before it is answered; after a crash,
``turnstate chat --continue`` resumes the chat.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, structs

from .. import catalog, ids
from ..agent import Agent, AgentEvent, ReplySaved, RequestStarted, ToolManager
from ..catalog import named
from ..checkpoints import CheckpointManager
from ..config import AgentProfile, Settings
from ..config.assembly import Equipment, check_installed, connect, equipped
from ..config.binding import META, Binding, bind, bound
from ..context.policy import Budget
from ..conversation import ConversationState
from ..entry import Usage
from ..errors import Busy, CheckpointError, Fenced, InputError, TurnstateError, UnknownCheckpoint
from ..home import Home
from ..log.tangents import open_tangents
from ..message import Message
from ..models import Endpoint, Model, ModelEvent, ModelRequest, endpoint_of
from ..models.endpoint import LOCAL
from ..plain_text import first_words
from ..session import Session, SessionManager
from ..session.leases import holder_name
from ..snapshots import Snapshots
from ..sticky import Gathered
from ..terminal import screen
from ..tokens import counter
from ..tools import CONVERSATION_TOOLS, MEMORY_TOOLS, Rule
from .commands import run as run_command_line
from .view import ChatView, Choice

LEASE_SECONDS = 30.0
RECENT = 30
"""Sessions that completion offers."""
MAX_ATTACHED_BYTES = 200_000
"""Maximum bytes of a file that is attached with @; the model can read the rest with a tool."""

SYSTEM = (
    "You are a careful assistant in a terminal. You work in the folder of the user with the tools that you "
    "have; read before you change, and say what you did."
)

_MENTION = re.compile(r"(?<!\S)@([^\s@]+)")


class ChosenModel:
    """A model by its address, bound to the endpoint that it has now; it connects on the first request."""

    def __init__(
        self, address: str, settings: Settings | None = None, *, endpoint: Endpoint | None = None
    ) -> None:
        if not address.strip():
            raise InputError("name a model: gpt-6.1-sol, claude-sonnet-5-5, NAME@URL, or local")
        check_installed(address)
        self.address, self.endpoint = address, endpoint or endpoint_of(address)
        self._settings = settings or Settings.load()
        self._settings.register_models()
        self._model: Model | None = None

    @property
    def name(self) -> str:
        """The model's name, as in requests and in the log."""
        if self.address == LOCAL:
            from ..models.local import NAME  # deferred: only the local model needs it

            return NAME
        return self.address.partition("@")[0]

    @property
    def shown(self) -> str:
        """The model and where its requests go, for people."""
        return f"{self.name} at {self.endpoint}"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer a request, event by event."""
        if self._model is None:
            made = partial(connect, self.address, self._settings, endpoint=self.endpoint)
            self._model = await asyncio.to_thread(made)
        async for event in self._model.stream(request):
            yield event


class Status(Struct, frozen=True, kw_only=True):
    """What the status line shows."""

    model: str
    tokens: int = 0
    limit: int = 0
    usage: dict[str, int] = {}
    cached: float | None = None
    cost: float | None = None
    place: str = "main"


class Chat:
    """The open session, and the agent that answers in it."""

    def __init__(
        self,
        sessions: SessionManager,
        view: ChatView,
        model: ChosenModel | None,
        *,
        user: str,
        workspace: Path,
        allow: Iterable[str] = (),
        settings: Settings | None = None,
        snapshots: Snapshots | None = None,
        home: Home | None = None,
        memory_sends: Mapping[str, Endpoint] = MappingProxyType({}),
    ) -> None:
        self.sessions, self.view, self._model = sessions, view, model
        self.user, self.workspace = user, workspace
        self.snapshots, self.home = snapshots, home or Home.from_environment()
        self.settings = settings or Settings.load(workspace, home=self.home)
        self._memory_sends = memory_sends
        self._rules = [Rule(pattern, "allow") for pattern in allow]
        self._equipment: Equipment | None = None
        self._equipped = AsyncExitStack()
        self._sticky: Gathered | None = None
        self.status = Status(model=model.name if model else "")
        self.looking = False
        """True while another process holds the session; this chat then writes nothing."""
        self.recent: Sequence[tuple[str, str]] = ()
        """Ids and titles of the user's sessions, most recently used first."""
        self.leaving = False
        self.failed = False
        """True if a line ended with an error."""
        self._session: Session | None = None
        self._held = AsyncExitStack()
        self._checkpoints: CheckpointManager | None = None
        self._reported = Usage(input=0, output=0, cached=0)
        self._cost = 0.0

    @property
    def is_open(self) -> bool:
        """True if a session is open."""
        return self._session is not None

    @property
    def session(self) -> Session:
        """The open session."""
        if self._session is None:
            raise InputError("no session is open")
        return self._session

    @property
    def model(self) -> ChosenModel:
        """The model that answers in the open session."""
        if self._model is None:
            raise InputError("no model is selected; name one with --model")
        return self._model

    @property
    def equipment(self) -> Equipment:
        """The agent that answers, with its tools and servers."""
        if self._equipment is None:
            raise InputError("no agent has been started yet")
        return self._equipment

    @property
    def profile(self) -> AgentProfile:
        """The profile of the agent, from its file."""
        return self.equipment.profile

    @property
    def tools(self) -> ToolManager:
        """The tools of the agent."""
        return self.equipment.tools

    @property
    def model_name(self) -> str:
        """The model that answers; while looking on without one, the session's; empty if it is not known."""
        if self._model is not None or not self.looking:
            return self.model.name
        known = bound(self.session.info, self.home)
        return known.model if known else ""

    @property
    def budget(self) -> Budget:
        """The budget for that model; unlimited if it is not known."""
        return self.equipment.budget(self.model_name) if self.model_name else Budget.UNLIMITED

    async def close(self) -> None:
        """Release the session and stop the agent's servers."""
        await self._held.aclose()
        await self._equipped.aclose()

    async def use_agent(self, agent: str | AgentProfile | None) -> None:
        """Let another agent answer from now on; without a name, the one that the settings name."""
        memory = MEMORY_TOOLS if self.sessions.memory is not None else ()
        held = AsyncExitStack()
        equipment = await held.enter_async_context(
            equipped(
                agent,
                folder=self.workspace,
                settings=self.settings,
                home=self.home,
                tools=[*CONVERSATION_TOOLS, *memory],
                rules=self._rules,
                ask=self.view.approve,
            )
        )
        await self._equipped.aclose()
        self._equipment, self._equipped = equipment, held
        for reason in equipment.servers.failures.values():
            await self.view.notice(reason)
        if self._session is not None and not self.looking:
            await self._set_prompt()

    async def begin(self) -> None:
        """Begin a new session and make it the open one."""
        system = self.profile.prompt if self.profile.prompt is not None else SYSTEM
        id, binding = str(ids.message_id()), self._binding(self.workspace)
        record = binding.signed(self.home, self.sessions.tenant, id)
        session = await self.sessions.create(
            id=id, user=self.user, system=system, model=self.model.name, meta={META: record}
        )
        await self.enter(session)

    async def enter(self, session: Session, *, take_over: bool = False, said: bool = False) -> bool:
        """Take the lease of a session and make it the open one; return False if the user declines.

        The model that the session is bound to answers; with ``said``, the user named the present one for it.
        """
        held = AsyncExitStack()
        looking = False
        try:
            take_over = take_over or _is_dead(session.info.holder)
            await held.enter_async_context(session.lease(seconds=LEASE_SECONDS, take_over=take_over))
        except Busy:
            match await self._asked_what_to_do(session.info.holder):
                case "t":
                    await held.enter_async_context(session.lease(seconds=LEASE_SECONDS, take_over=True))
                case "l":
                    looking = True
                case _:
                    return False
        try:
            model = self._model if said or looking else await self._bound_model(session)
        except BaseException:  # a canceled task, too: the lease must not outlive the attempt
            await held.aclose()
            raise
        if model is None and not looking:
            await held.aclose()
            return False
        await self._held.aclose()
        self._held, self._session, self.looking = held, session, looking
        self._checkpoints = None
        self._reported, self._cost = Usage(input=0, output=0, cached=0), 0.0
        if model is not None and not looking:
            await self._answer_with(model)
            await self._set_prompt()
        await self.refresh()
        return True

    async def use_model(self, address: str) -> None:
        """Let another model answer from now on."""
        await self._answer_with(ChosenModel(address, self.settings))

    async def _answer_with(self, model: ChosenModel) -> None:
        """Let a model answer in the open session, and bind the session to its endpoint."""
        self._model = model
        known = bound(self.session.info, self.home)
        binding = structs.replace(self._binding(None), folder=known.folder if known else "")
        if known != binding:
            await bind(self.session, binding, self.home)  # before anything is sent there
            await self.session.set_model(model.name)
        self.session.summarize_with(model)
        for part, place in self._memory_sends.items():  # the user configured it, perhaps not for this session
            if place != model.endpoint:
                await self.view.notice(
                    f"the {part} of your memory sends what is said here to {place}; --no-memory prevents that"
                )

    async def _bound_model(self, session: Session) -> ChosenModel | None:
        """Return the model that a session is bound to; if it is bound to none, ask, and None means no."""
        known, present = bound(session.info, self.home), self._model
        if known is None:
            return await self._confirmed(session)
        if present is not None and present.endpoint == known.endpoint:
            if present.name == known.model:
                return present
            url = present.address.partition("@")[2]  # perhaps with a password, which a binding has not
            address = f"{known.model}@{url}" if url else known.address
            return ChosenModel(address, self.settings, endpoint=known.endpoint)
        model = ChosenModel(known.address, self.settings, endpoint=known.endpoint)
        if present is not None:
            await self.view.notice(f"{model.shown} answers in this session; /model NAME changes that")
        return model

    async def _confirmed(self, session: Session) -> ChosenModel | None:
        """Ask whether a session that is bound to no endpoint may be sent to the present model."""
        if not self.view.interactive:
            raise InputError(
                f"session {session.id} does not say where its messages may be sent; name the model that "
                f"answers: turnstate chat --resume {session.id} --model NAME (or NAME@URL)"
            )
        answer = await self.view.choose(
            f"This session does not say where its messages may be sent. Send them to {self.model.shown}?",
            [Choice("y", "yes"), Choice("n", "no")],
        )
        return self.model if answer == "y" else None

    def _binding(self, folder: Path | None) -> Binding:
        return Binding.of(folder, self.model.name, self.model.endpoint)

    async def handle(self, line: str) -> None:
        """Handle a line: run a command, or send a message to the model."""
        words = line.strip()
        if not words:
            return
        try:
            if words.startswith("/") and not words.startswith("//"):
                self._checkpoints = None  # a command may switch to another branch
                await run_command_line(self, words)
            else:
                await self.say(words.removeprefix("/") if words.startswith("//") else words)
        except Fenced:
            self.looking = self.failed = True
            await self.view.error("another process took this session over; /takeover takes it back")
        except TurnstateError as error:
            self.failed = True
            await self.view.error(screen.located(error))
        await self.refresh()

    async def say(self, words: str) -> None:
        """Send a message to the model and show its turn."""
        self.check_writable()
        if not self.session.info.title:
            await self.session.rename(first_words(words))
        agent = await self._agent()
        await self._show(agent.run(Message.user(self._with_files(words))))

    async def resume_turn(self) -> bool:
        """Continue a turn that an earlier process left unfinished; return False if there is none."""
        if self.looking or await self.session.pending() is None:
            return False
        known = bound(self.session.info, self.home)
        if known is None or not known.is_in(self.workspace):
            where = f"in {known.folder}" if known and known.folder else "in a folder that is not known"
            await self.view.notice(
                f"the last turn was interrupted {where}; nothing of it runs here: say how to go on"
            )
            return False
        await self.view.notice("the last turn was interrupted; it goes on")
        try:
            await self._show((await self._agent()).resume())
        except TurnstateError as error:
            await self.view.error(screen.located(error))
        await self.refresh()
        return True

    async def go_back(self, message: Message) -> None:
        """Go back to before a message of the user, so that it can be rephrased."""
        await self.session.rewind(str(message.id), before=True)

    def check_writable(self) -> None:
        """Raise `Busy` if another process holds the session."""
        if self.looking:
            raise Busy("another process has this session; /takeover takes it from there")

    async def kept_settings(self) -> ConversationState:
        """Return the settings of the conversation, such as its sticky files, without its messages."""
        state = await self.session.conversation(last=0)
        state.attach(agents=self.profile, tool_manager=self.tools)
        return state

    async def in_tangent(self) -> bool:
        """Return True if a tangent is open."""
        names: list[str] = await self.session.ask(open_tangents())
        return bool(names)

    async def checkpoints(self, *, make: bool = False) -> CheckpointManager:
        """Open the checkpoints of this session and folder; `make` creates them if there are none."""
        how = CheckpointManager.open if make else CheckpointManager.reopen
        return await how(self.session, self.workspace, home=self.home)

    async def refresh(self) -> None:
        """Update the status line and the recent sessions."""
        if self._session is None:
            return
        window = await self.session.preview(self.budget, tools=self.tools.specs(), context=self._sticky)
        newest = await self.sessions.list(user=self.user, order="active", limit=RECENT)
        self.recent = [(one.id, one.title) for one in newest]
        branches = {one.id: one for one in await self.session.branches()}
        branch = branches.get(self.session.info.branch)
        places = {"tangent": "tangent", "fork": branch.name or "fork"} if branch else {}
        sent = self._reported.input
        self.status = Status(
            model=self.model_name,
            tokens=window.tokens,
            limit=window.limit if self.model_name else 0,
            usage=window.report.usage,
            cached=self._reported.cached / sent if sent else None,
            cost=self._cost or None,
            place=places.get(branch.operation, "main") if branch else "main",
        )

    async def _agent(self) -> Agent:
        """Return the agent, with the sticky files of its profile and of the user."""
        kept = await self._kept_files()
        context = (await self.kept_settings()).context_manager
        self._sticky = None
        if context is not None and context.paths:
            context.for_window(named(self.model.name).context_window)
            tokens = counter(named(self.model.name).counter)
            self._sticky = await asyncio.to_thread(context.gather, tokens)
        return self.equipment.agent(self.session, self.model, checkpoints=kept, context=context)

    async def _kept_files(self) -> CheckpointManager | None:
        """Return the checkpoints of the folder if it is in a Git repository or the user has saved one."""
        if self._checkpoints is None:
            try:
                self._checkpoints = await CheckpointManager.open_in_git(
                    self.session, self.workspace, home=self.home
                )
                if self._checkpoints is None:
                    self._checkpoints = await self.checkpoints()
            except UnknownCheckpoint:
                return None
            except CheckpointError as error:
                await self.view.notice(f"no checkpoints are taken: {error}")
                return None
        return self._checkpoints

    async def _set_prompt(self) -> None:
        """Set the agent's prompt; if it has none, the session keeps its own."""
        prompt = self.profile.prompt
        if prompt is not None and await self.session.system() != prompt:
            await self.session.set_system(prompt)

    async def _show(self, events: AsyncIterator[AgentEvent]) -> None:
        async with aclosing(events) as shown:  # type: ignore[type-var]
            async for event in shown:
                self._note(event)
                if isinstance(event, RequestStarted):
                    # By now the user's words are saved, so what another folder left open never runs here.
                    await bind(self.session, self._binding(self.workspace), self.home)
                await self.view.event(event)

    def _note(self, event: AgentEvent) -> None:
        match event:
            case RequestStarted(tokens=tokens, limit=limit):
                self.status = Status(
                    model=self.model.name,
                    tokens=tokens,
                    limit=limit,
                    usage=self.status.usage,
                    cached=self.status.cached,
                    cost=self.status.cost,
                    place=self.status.place,
                )
            case ReplySaved(usage=Usage() as usage):
                self._reported = Usage(
                    input=self._reported.input + usage.input,
                    output=self._reported.output + usage.output,
                    cached=self._reported.cached + usage.cached,
                )
                cost = catalog.cost(usage)
                self._cost += cost.amount if cost else 0

    async def _asked_what_to_do(self, holder: str) -> str:
        if not self.view.interactive:
            raise Busy(f"this session is open in another process ({holder}); pass --take-over to take it")
        return await self.view.choose(
            f"This session is open in another process ({holder}).",
            [Choice("l", "look on"), Choice("t", "take over"), Choice("n", "neither")],
        )

    def _with_files(self, words: str) -> str:
        """Return a message followed by the files that it mentions with @."""
        if self.tools.workspace is None:
            return words
        attached = list[str]()
        for path in dict.fromkeys(_MENTION.findall(words)):
            name = path.rstrip(".,;:!?)")
            try:
                data = self.tools.workspace.read(name)
            except TurnstateError:
                continue  # not every @ is a file
            text = data[:MAX_ATTACHED_BYTES].decode("utf-8", "replace")
            more = f"\n… ({len(data):,} bytes in all)" if len(data) > MAX_ATTACHED_BYTES else ""
            attached.append(f'<file path="{name}">\n{text}{more}\n</file>')
        return "\n\n".join([words, *attached])


def _is_dead(holder: str) -> bool:
    """Return True if the holder of a lease is a process of this machine that has ended."""
    host, _, pid = holder.rpartition(":")
    if not host or host != holder_name().rpartition(":")[0] or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
