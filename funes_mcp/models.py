"""What is asked of the service, and what it answers. The command line and the MCP server share these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from funes_mcp.memory.model import Chunk, Sighting
from funes_mcp.traces.model import Tally

if TYPE_CHECKING:
    from funes_mcp.curation.desk import Desk
    from funes_mcp.deepmodels import Deepened, DeepModels
    from funes_mcp.remotes import Remotes


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """A question to a memory, already checked and coerced.

    Attributes:
        query: As typed. Any text works.
        k: How many passages to return, at least 1.
        candidates: How many passages the reranker reads.
        neighbors: How many turns before and after a hit to show in short; 0 for none.
        half_life: Days in which recency halves; 0 for no recency. It only ever breaks near-ties.
        block_type, harness, project, session, since, until: Restrict the search; see `memory.model.Filter`.
            `harness` is taken as typed (`claude` or `claude_code`), `session` may be a unique prefix,
            `since` and `until` are ISO dates or times, or ages such as `7d`.
        memory: Label of the memory; `local` for the one under `$FUNES_HOME`.
        rerank: `auto`, `off`, `maxsim` or a cross-encoder's name; "" for what the service was started with.
        min_relevance: Every hit must be at least so relevant, see `Hit`; None for the usual floor, which only the
            best hit must reach. 0 shows whatever was found.
        bound: Nobody named the memory, it is the one that a server was started with: when it cannot be had, the local
            one answers.
    """

    query: str
    k: int = 8
    candidates: int = 50
    neighbors: int = 1
    half_life: float = 30.0
    block_type: str | None = None
    harness: str | None = None
    project: str | None = None
    session: str | None = None
    since: str | None = None
    until: str | None = None
    memory: str = "local"
    rerank: str = ""
    min_relevance: float | None = None
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A turn beside a hit, in short."""

    role: str
    block_type: str
    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage: the chunk word for word, its score in [0, 1], and what surrounds it.

    Attributes:
        also_in: Other sessions in which the same message stands (resumed, forked or branched copies).
        folded: How many further chunks of the same reply were found and folded into this hit.
        alike: How many other passages of the same session say nearly the same and are left out.
        relevance: How likely the passage has to do with the question at all, in [0, 1]. Unlike `score` it is
            comparable between questions; it does not order hits.
    """

    chunk: Chunk
    score: float
    neighbors: tuple[Neighbor, ...] = ()
    also_in: tuple[Sighting, ...] = ()
    folded: int = 0
    alike: int = 0
    relevance: float = 1.0


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """Hits, best first, and notes for the reader (a stale or growing memory, a leg that is degraded).

    Attributes:
        memory: Label of the memory that the hits are from; "" for the one that was asked.
    """

    hits: tuple[Hit, ...]
    notes: tuple[str, ...] = ()
    memory: str = ""


@dataclass(frozen=True, slots=True)
class GetRequest:
    """A turn to open. `session` may be any unique prefix; `window` turns are shown on each side.

    `bound` as in `RecallRequest`.
    """

    session: str
    turn: str
    window: int = 3
    memory: str = "local"
    bound: bool = False


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn put together again: its blocks whole, in order. `marks` are words such as `abandoned branch`."""

    turn_uuid: str
    role: str
    seq: int
    ts: str
    blocks: tuple[str, ...]
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GetAnswer:
    """The turns around the one asked for, in the order of the conversation.

    Attributes:
        session_id: The full id of the session.
        found: False when the session is known but the turn is not in it; then `turns` is empty.
        memory: Label of the memory that the turns are from; "" for the one that was asked.
    """

    session_id: str
    turn_uuid: str
    found: bool
    turns: tuple[TurnView, ...]
    notes: tuple[str, ...] = ()
    memory: str = ""


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """What to index.

    Attributes:
        path: A transcript or a folder of them instead of the agents' own folders.
        harness: One agent only, as typed.
        limit: At most this many sources, newest first.
        thinking: Whether thinking blocks are stored.
        model: The embedder of a memory that is made now; None for the bundled one.
    """

    path: Path | None = None
    harness: str | None = None
    limit: int | None = None
    thinking: bool = True
    model: str | None = None


@dataclass(slots=True)
class SourceCounts:
    """Sources by what became of them.

    Attributes:
        found: On disk now.
        read: Read by this pass; in a status, read at any time and not changed since.
        unchanged: Not read by this pass, because nothing changed.
        failed: Could not be read.
        waiting: Never read, or changed since.
        gone: Read once and not on disk any more; what was read is kept.
        skipped: Files that are no transcripts, by the reason.
    """

    found: int = 0
    read: int = 0
    unchanged: int = 0
    failed: int = 0
    waiting: int = 0
    gone: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class IndexReport:
    """What an indexing pass did.

    Attributes:
        sources: By harness.
        records: The account of lines, by harness.
        chunks_stored: New rows. `chunks_known` were there already; `chunks_copied` stand in another session.
        chunks_removed: Rows whose turn was taken out of its transcript.
        embedded: Rows that got a vector.
        redacted: Credentials that were replaced by a mark, by kind.
        failures: `(path, reason)` of sources that could not be read.
        notes: Sentences about what of the memory was lost or damaged and was made again.
        interrupted: True after Ctrl-C; what was stored stays.
    """

    sources: dict[str, SourceCounts] = field(default_factory=dict)
    records: dict[str, Tally] = field(default_factory=dict)
    chunks_stored: int = 0
    chunks_known: int = 0
    chunks_copied: int = 0
    chunks_removed: int = 0
    embedded: int = 0
    redacted: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    failures: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False


class Progress(Protocol):
    """Told how an indexing pass goes on."""

    def started(self, sources: int, total_bytes: int, *, compiling: bool = False) -> None:
        """The pass begins.

        Args:
            compiling: Whether the rules that find credentials have to be compiled, so that nothing is stored for
                some seconds.
        """
        ...

    def read(self, chunks: int) -> None:
        """A part of a source was read; this is where a pass may be stopped."""
        ...

    def source_done(self, path: str, bytes_read: int, chunks: int) -> None: ...

    def committed(self, chunks: int) -> None: ...

    def finished(self, report: IndexReport) -> None: ...


@dataclass(frozen=True, slots=True)
class HarnessStatus:
    """One agent in a memory: what is stored, and the account of what was read.

    Attributes:
        roots: `(folder, why it is looked at, whether it is there)`.
        chunks: Passages that are stored.
        copied: Further passages in its sessions, which are copies of stored ones in other sessions.
        newest: RFC 3339 of the newest turn, or "". `title` is that of its session, where it has one.
    """

    harness: str
    roots: tuple[tuple[str, str, bool], ...]
    sources: SourceCounts
    sessions: int
    chunks: int
    records: Tally
    newest: str = ""
    title: str = ""
    copied: int = 0

    @property
    def computed(self) -> int:
        """Passages of all sessions: those that are stored, and the copies that need not be."""
        return self.chunks + self.copied


@dataclass(frozen=True, slots=True)
class PublishedStatus:
    """How a memory that was not made here stands: a published one, or one in a folder.

    Attributes:
        commit: What the copy here shows; "" when there is none.
        private: Whether the repository is; None when nobody says.
        fetched_at, checked_at: When it was fetched, and when the Hub last said that this is the newest; RFC 3339 or "".
        refused: `(why, how many)` of rows that cannot be a memory's.
        lacking: Columns that it has not.
        on_hub: Whether it is a dataset on the Hub.
    """

    commit: str
    private: bool | None
    fetched_at: str = ""
    checked_at: str = ""
    refused: tuple[tuple[str, int], ...] = ()
    lacking: tuple[str, ...] = ()
    on_hub: bool = True


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The state of a memory.

    Attributes:
        chunks, sessions, embedded: Stored rows, sessions, and rows with a vector.
        embedder: The model of the vectors.
        pending: Sources on disk that changed since they were last read.
        notes: Sentences about anything that needs attention.
        hooks: `(name, last success, last failure)` of the hooks that ran, RFC 3339 or "".
        published: Of a memory that was not made here; None for others.
        bound: The published memories that agents are bound to, or that this machine publishes to.
    """

    label: str
    path: str
    exists: bool
    chunks: int = 0
    sessions: int = 0
    embedded: int = 0
    embedder: str = ""
    disk_bytes: int = 0
    pending: int = 0
    harnesses: tuple[HarnessStatus, ...] = ()
    notes: tuple[str, ...] = ()
    hooks: tuple[tuple[str, str, str], ...] = ()
    published: PublishedStatus | None = None
    bound: tuple[BoundMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        about: What, in a word or two.
        state: `ok`; `note` for what a person may want to know; `problem` for what is broken or unexplained.
        hint: What to type, for a problem.
    """

    about: str
    state: Literal["ok", "note", "problem"]
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """A memory compared with what is on disk."""

    path: str
    findings: tuple[Finding, ...]
    harnesses: tuple[HarnessStatus, ...] = ()

    @property
    def problems(self) -> int:
        """How many things are broken or unexplained."""
        return sum(finding.state == "problem" for finding in self.findings)


@dataclass(slots=True)
class ScrubReport:
    """What `scrub` found, and changed unless it was to look only.

    Attributes:
        dry: Whether it was to look only.
        rows: Passages that were searched.
        messages, blocks: How many hold a credential.
        dropped: Blocks that were given up, because no credential could be cut from them safely.
        facts: Credentials in titles, branches, folders, and in what parsers remember of a source.
        counts: Credentials in passages, by kind.
        erased: Whether the files of the memory were written again.
    """

    dry: bool = False
    rows: int = 0
    messages: int = 0
    blocks: int = 0
    dropped: int = 0
    facts: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    erased: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """What to forget: exactly one of the three.

    Attributes:
        session: A unique prefix of a session's id.
        project: As in `RecallRequest`.
        before: A date, a time or an age: sessions whose last turn was before it.
    """

    session: str | None = None
    project: str | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True)
class PublishedCopy:
    """A memory on the Hub with something of sessions that are to be forgotten, as far as this machine knows.

    Attributes:
        page: The address of the page on which its dataset can be deleted.
        sessions: Of how many of the sessions.
    """

    label: str
    page: str
    sessions: int


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """What a request comes to.

    Attributes:
        sessions: Full ids, with those of the subagents of the sessions that are meant.
        subagents: How many of them are subagents'.
        chunks: Passages that go.
        copies: `(session, messages)` of sessions that stay and hold copies of some of these messages.
        why: What is kept on the tombstones.
        transcripts: Paths of the transcripts, which stay.
        published: Where copies were published, which stay, too.
    """

    sessions: tuple[str, ...]
    subagents: int
    chunks: int
    copies: tuple[tuple[str, int], ...]
    why: str
    transcripts: tuple[str, ...]
    published: tuple[PublishedCopy, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A session that is not stored any more, on purpose: see `memory.tombstones.Tombstone`."""

    session: str
    at: str
    why: str


@dataclass(frozen=True, slots=True)
class PushRequest:
    """What to publish, and where.

    Attributes:
        memory: Label of a dataset on the Hub.
        sessions: Full ids of the only sessions that may go; empty for all.
        yes: Every question is answered with yes.
        compact: Join the files of the published memory, also when nothing is to be sent.
        dry: Say what would go, and send nothing.
        most: About so many passages at most.
    """

    memory: str
    sessions: tuple[str, ...] = ()
    yes: bool = False
    compact: bool = False
    dry: bool = False
    most: int | None = None


class PushTalk(Protocol):
    """How a push speaks with the person, if there is one."""

    def agrees(self, question: str) -> bool | None:
        """Ask a yes-or-no question; None when there is nobody to ask."""
        ...

    def warn(self, text: str) -> None:
        """Say something that has to be known before the next question."""
        ...

    def step(self, what: str, done: int, total: int) -> None:
        """Tell how far something is that takes long; a `total` of 0 is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """A dataset on the Hub as it stands before an agent is bound to it.

    Attributes:
        state: `there`; `missing`, or not to be seen with this token; `unreachable`, and `trouble` says why.
        private: Whether it is. `writable` says whether the token may commit to it, as far as is known.
        passages: That its memory holds; None when there is no memory in it.
        shared: Whether something of this machine is there.
        agreed: Whether a person said before that this machine's sessions go there, as public as it is.
    """

    label: str
    state: Literal["there", "missing", "unreachable"]
    trouble: str = ""
    private: bool = True
    writable: bool = True
    passages: int | None = None
    shared: bool = False
    agreed: bool = False


@dataclass(slots=True)
class PushReport:
    """What a push did, or with `dry` would do.

    Attributes:
        label, url: The memory, and its page.
        created: Whether the dataset was made. `public` says whether everybody can read it.
        missing: Whether there is none, as far as the token may see, and it was not made.
        commit: The commit that holds everything that was sent; "" when there is none.
        sent, sessions: Passages that went, and of how many sessions they are.
        bytes: That were uploaded, in `files` files.
        held: Passages that were held back. `kinds` counts what looked like a credential, `held_sessions` names the
            sessions they are of.
        unfilled: Passages that wait until they have a vector.
        left_out: Sessions that wait for the person's decision.
        later: Passages beyond the limit of this push.
        embedded: Passages that got a vector of the published memory's model.
        joined: Whether the files of the published memory were joined.
        attempts: How often it was tried, because somebody else published meanwhile.
        seconds: In all, and `searching` for credentials.
    """

    label: str
    url: str = ""
    dry: bool = False
    created: bool = False
    public: bool = False
    missing: bool = False
    commit: str = ""
    sent: int = 0
    sessions: int = 0
    bytes: int = 0
    files: int = 0
    held: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    held_sessions: tuple[str, ...] = ()
    unfilled: int = 0
    left_out: int = 0
    later: int = 0
    embedded: int = 0
    joined: bool = False
    attempts: int = 1
    seconds: float = 0.0
    searching: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def nothing_left(self) -> bool:
        """Whether there was something to send, and all of it is held back."""
        return self.held > 0 and self.sent == 0


@dataclass(frozen=True, slots=True)
class BoundMemory:
    """A memory on the Hub that agents of this machine are bound to, as far as this machine knows without asking.

    Attributes:
        agents: Names of the agents that read it; `publishing` are those at whose session ends this machine publishes.
        known: Whether this machine ever published to it.
        pushed: When it last did, RFC 3339 or "".
        commit: Of the last push that sent something; "" before it.
        rows, sessions: Passages of this machine that were there after the last push, and of how many sessions.
        waiting: Sessions with something to send.
        held_rows: Passages that are held back, and `held` by what kind of credential.
        left_out: Sessions that wait for the person's decision.
        failed: When a push last failed since, and `reason` why; "" when none did.
    """

    label: str
    agents: tuple[str, ...] = ()
    publishing: tuple[str, ...] = ()
    known: bool = False
    pushed: str = ""
    commit: str = ""
    rows: int = 0
    sessions: int = 0
    waiting: int = 0
    held_rows: int = 0
    held: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    failed: str = ""
    reason: str = ""


class Service(Protocol):
    """What the command line, the MCP server, the hooks and `ask` are given."""

    def index(self, request: IndexRequest, progress: Progress | None = None) -> IndexReport:
        """Bring the memory up to date with the transcripts. Raises `MemoryBusyError`, `FunesError`."""
        ...

    def recall(self, request: RecallRequest) -> RecallAnswer:
        """Search. Raises `NoMemoryError` before any model is loaded, `FunesError` for a failed search."""
        ...

    def get(self, request: GetRequest) -> GetAnswer:
        """Open a turn. Raises `NotFoundError` or `AmbiguousSessionError` for the session."""
        ...

    def status(self, memory: str = "local") -> StatusReport:
        """Say how a memory stands; there need not be a local one. Raises `NoMemoryError` for any other."""
        ...

    def doctor(self) -> DoctorReport:
        """Check the local memory against the disk. Changes nothing. Never raises for what it finds."""
        ...

    def sessions(self, prefix: str = "") -> Sequence[str]:
        """Ids of the sessions that start so."""
        ...

    def scrub(self, *, dry: bool = False, told: Callable[[int, int], None] | None = None) -> ScrubReport:
        """Take credentials out of what is stored. Raises `ScannerError`, `MemoryBusyError`, `NoMemoryError`."""
        ...

    def push(self, request: PushRequest, talk: PushTalk | None = None) -> PushReport:
        """Publish what a memory on the Hub lacks. Raises `FunesError`; `PushRefusedError` where nobody agreed."""
        ...

    def look_at(self, memory: str, talk: PushTalk | None = None) -> Target:
        """Say how a dataset stands to which an agent is to be bound. Raises `FunesError` where it is no memory."""
        ...

    def create(self, memory: str) -> str:
        """Make the private dataset that a person agreed to. Returns the address of its page. Raises `HubError`."""
        ...

    def agree(self, memory: str, *, public: bool) -> None:
        """Remember that a person said that this machine's sessions go there. Raises `BadRequestError`."""
        ...

    def plan_forgetting(self, request: ForgetRequest) -> ForgetPlan:
        """Say what a request comes to, and change nothing. Raises `NotFoundError`, `BadRequestError`."""
        ...

    def forget(self, plan: ForgetPlan, told: Callable[[int, int], None] | None = None) -> int:
        """Remove sessions for good. Returns how many passages went. Raises `MemoryBusyError`."""
        ...

    def forgotten(self, request: ForgetRequest) -> Sequence[Forgotten]:
        """The forgotten sessions that a request names; all of them when it names nothing."""
        ...

    def unforget(self, sessions: Sequence[str]) -> Sequence[str]:
        """Let sessions be indexed again. Returns the paths of their transcripts. Raises `MemoryBusyError`."""
        ...

    def curation(self, memory: str, repository: str | None, here: Path) -> Desk:
        """Get ready to review what a published memory gets; see `curation.desk.open_desk`."""
        ...

    @property
    def models(self) -> DeepModels:
        """The models of this home."""
        ...

    @property
    def remotes(self) -> Remotes:
        """The published memories that this process reads."""
        ...

    def deepen(self, seconds: float | None = 60.0) -> Deepened:
        """Embed what waits for it, for about so long. Raises `FunesError`."""
        ...

    def prepare(self) -> None:
        """Have ready what the next pass needs and takes long to make, once. Never raises."""
        ...

    def behind(self, seconds: float) -> Sequence[str]:
        """Names of the agents in use whose transcripts changed so long ago and still wait to be read."""
        ...

    def warm(self, memory: str = "local") -> None:
        """Load what a recall needs, so that the first one is as fast as the next. Never raises."""
        ...
