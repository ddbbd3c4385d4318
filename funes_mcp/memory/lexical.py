"""The word index of a memory: a tantivy index derived from the table, and the rows that a search shows.

A document is a chunk. It is found by three fields: `words` (as English stems: its own, and the nearest words of
the chunks before and after it in its session), `exact` (identifiers, kept whole) and `pairs` (two characters at
a time, for scripts without spaces). The row itself is stored beside them, so that reading needs no other file.
Cutting texts into words happens in tantivy's threads.

Questions never meet a query parser: they are cut by the same rules and each term is asked for by itself, so
any text is a valid question.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from funes_mcp.errors import DerivedDamagedError, FunesError
from funes_mcp.memory import readonly, segments, terms
from funes_mcp.memory.chunk import munge
from funes_mcp.memory.model import Chunk, Filter, Passage, Scored
from funes_mcp.memory.packing import Entry, Packer
from funes_mcp.memory.times import UNDATED, millis
from funes_mcp.traces.model import BLOCK_TYPES

if TYPE_CHECKING:
    import tantivy

#: Raised whenever the documents change shape: an index of another version is built again from the table.
VERSION: Final = 5

#: Weights of the fields against each other. On commit messages asked of the sessions that led to them, weights
#: of `exact` from 0.5 to 2 made no difference above noise.
WEIGHTS: Final = {"words": 1.0, "exact": 1.0, "pairs": 1.0}

#: At most so many words of a question are asked for: the rarest ones.
MOST_TERMS: Final = 40

#: A question is read this far; what follows is more of the same.
LONGEST_QUESTION: Final = 20_000

_LONGEST_WORD: Final = 66
_PREFIXES: Final = 8
_SLACK: Final = 64
_KEYS_AT_ONCE: Final = 4096
_FEW_NAMES: Final = 20_000
_NOT_WRITTEN: Final = "The word index could not be written"
_NOT_READ: Final = "The word index could not be read"
_NOT_SEARCHED: Final = "The word search failed"


@dataclass(frozen=True, slots=True)
class Found:
    """What the index knows of a chunk without fetching its row."""

    session: int
    ts: int
    block_type: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a passage has of a question's words.

    Attributes:
        share: The words that stand in it or beside it, each by how rare it is in the memory, in [0, 1]; words that
            are nowhere in the memory count as the rarest.
        named: Whether it holds an identifier of the question, exactly: a path, a dotted or underscored name, a digest,
            an error code, an option.
    """

    share: float
    named: bool


def _cut(question: str) -> tuple[str, str]:
    """As much of a question as is read, and its words without those of scripts that put no spaces between them."""
    question = question[:LONGEST_QUESTION]
    return question, terms.without_unspaced(question) if terms.has_unspaced(question) else question


@lru_cache(maxsize=1024)
def hashed(text: str) -> int:
    """A text as a number of 63 bits: how sessions are named in fast fields."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


@lru_cache(maxsize=256)
def projects(repo: str, cwd: str | None, workdir: str) -> tuple[str, ...]:
    """The names by which `Filter.project` may call a session's project, in lower case."""
    found: dict[str, None] = {}
    for name in repo.lower().split():
        found[name] = None
        found[name.rsplit("/", 1)[-1]] = None
    if cwd:
        path = cwd.replace("\\", "/").rstrip("/").lower()
        found[path] = None
        found[path.rsplit("/", 1)[-1]] = None
    if workdir:
        found[workdir.lower()] = None
    found.pop("", None)
    return tuple(found)


def project_names(project: str) -> list[str]:
    """The spellings of a project, as a person names it, that `projects` may hold."""
    name = project.replace("\\", "/").rstrip("/").lower()
    spelled = [name]
    if "/" in name:
        spelled.append(munge(project.rstrip("/\\")).lower())
    return spelled


class Analyzers:
    """The analyzers that both the writer and the readers of an index need."""

    def __init__(self) -> None:
        import tantivy

        self.words = (
            tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
            .filter(tantivy.Filter.remove_long(_LONGEST_WORD))
            .filter(tantivy.Filter.lowercase())
            .filter(tantivy.Filter.stemmer("english"))
            .build()
        )
        self.spaced = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()

    def register(self, index: tantivy.Index) -> None:
        """Make them known to an index. They are not part of what is stored."""
        index.register_tokenizer("funes_words", self.words)
        index.register_tokenizer("funes_spaced", self.spaced)


def _schema() -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("key", indexed=True, fast=True)
    builder.add_text_field("words", tokenizer_name="funes_words", index_option="freq")
    builder.add_text_field("exact", tokenizer_name="funes_spaced", index_option="basic")
    builder.add_text_field("pairs", tokenizer_name="funes_spaced", index_option="freq")
    for name in ("session", "harness", "kind", "project"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("session_hash", fast=True)
    builder.add_unsigned_field("kind_code", fast=True)
    builder.add_integer_field("ts", fast=True)
    builder.add_integer_field("seq", fast=True)
    builder.add_bytes_field("common", stored=True)
    builder.add_bytes_field("own", stored=True)
    return builder.build()


def exists(folder: Path) -> bool:
    """Whether there is an index of this version in a folder."""
    try:
        return (folder / "version").read_bytes().strip() == str(VERSION).encode() and (folder / "meta.json").exists()
    except OSError:
        return False


def stamp_of(folder: Path) -> tuple[int, int, int]:
    """Tells apart the commits of the index in a folder. Raises `OSError`."""
    stat = (folder / "meta.json").stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def damage(folder: Path, *, thorough: bool = False) -> str:
    """What is wrong with the index of this version in a folder, in a few words; "" for nothing.

    One that is missing, or of another version, is not damaged.

    Args:
        thorough: See `segments.damage`.
    """
    try:
        version = (folder / "version").read_bytes().strip()
        if not version.isdigit():
            return "its version cannot be read"
        return segments.damage(folder, thorough=thorough) if version == str(VERSION).encode() else ""
    except OSError:
        return ""


@contextmanager
def guarded(folder: Path, what: str) -> Iterator[None]:
    """Says what an error of tantivy's inside means for the index in `folder`.

    Raises:
        DerivedDamagedError: Its files are damaged.
        FunesError: Something else is the matter; begins with `what`.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise _trouble(folder, what, error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of pyo3, and not to be imported
            raise
        raise _trouble(folder, what, error) from error


def _trouble(folder: Path, what: str, error: BaseException) -> FunesError:
    try:
        wrong = segments.damage(folder, thorough=True)
    except OSError as unreadable:
        wrong, error = ("it is gone", error) if isinstance(unreadable, FileNotFoundError) else ("", unreadable)
    return DerivedDamagedError(folder, wrong) if wrong else storage_error(what, error)


class LexicalWriter:
    """Adds to and deletes from the index in `folder`, which is made when missing. One at a time.

    Args:
        folder: Where the index lives.
        bulk: Whether much will be added: more memory and two threads instead of one.

    Raises:
        DerivedDamagedError: The files there are no index of this version.
        FunesError: They cannot be got at.
    """

    def __init__(self, folder: Path, *, bulk: bool) -> None:
        import tantivy

        self.bulk = bulk
        self._schema = _schema()
        self._folder = folder
        with guarded(folder, f"The word index in {folder} cannot be opened"):
            if exists(folder):
                self._index = tantivy.Index.open(str(folder))
            else:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._index = tantivy.Index(self._schema, path=str(folder))
                (folder / "version").write_text(f"{VERSION}\n", "ascii")
            Analyzers().register(self._index)
            self._packer = Packer(folder)
            self._names = terms.Names()
            self._writer: tantivy.IndexWriter | None = self._index.writer(
                160_000_000 if bulk else 30_000_000, 2 if bulk else 1
            )

    def add(self, entries: Iterable[Entry]) -> None:
        """Queue chunks. A chunk that is there already must be deleted first."""
        writer = self._open()
        entries = list(entries)
        self._packer.train(entries)
        with guarded(self._folder, _NOT_WRITTEN):
            for entry in entries:
                writer.add_document(self._document(entry))

    def _document(self, entry: Entry) -> tantivy.Document:
        import tantivy

        chunk = entry.chunk
        text = chunk.text
        document = tantivy.Document()
        document.add_unsigned("key", chunk.key)
        whole, inner = entry.names or self._names.joined(text)
        words = text
        if not text.isascii() and terms.has_unspaced(text):
            document.add_text("pairs", " ".join(terms.bigrams(text)))
            words = terms.without_unspaced(text)
        document.add_text("words", "\n".join((words, inner, *entry.near)))
        if whole:
            document.add_text("exact", whole)
        document.add_text("session", chunk.session_id)
        document.add_text("harness", chunk.harness)
        document.add_text("kind", chunk.block_type)
        for name in projects(chunk.repo, chunk.cwd, chunk.workdir):
            document.add_text("project", name)
        document.add_unsigned("session_hash", hashed(chunk.session_id))
        document.add_unsigned("kind_code", kind_code(chunk.block_type))
        document.add_integer("ts", millis(chunk.ts))
        document.add_integer("seq", chunk.seq)
        common, own = self._packer.pack(entry)
        document.add_bytes("common", common)
        document.add_bytes("own", own)
        return document

    def delete(self, keys: Iterable[int]) -> None:
        """Queue the removal of chunks that were added before this call."""
        import tantivy

        writer = self._open()
        wanted = list(keys)
        for start in range(0, len(wanted), _KEYS_AT_ONCE):
            # By query: deleting by a term does nothing for numbers, in the tantivy that is in use (0.27).
            part = wanted[start : start + _KEYS_AT_ONCE]
            with guarded(self._folder, _NOT_WRITTEN):
                writer.delete_documents_by_query(tantivy.Query.term_set_query(self._schema, "key", part))

    def commit(self) -> None:
        """Make what is queued durable and visible. Raises `FunesError` when that fails (a full disk)."""
        with guarded(self._folder, _NOT_WRITTEN):
            self._open().commit()

    def close(self) -> None:
        """Wait for merges to end and let go of the index. What was not committed is dropped."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with guarded(self._folder, _NOT_WRITTEN):
                writer.wait_merging_threads()

    def _open(self) -> tantivy.IndexWriter:
        if self._writer is None:
            raise FunesError("The word index is closed.")
        return self._writer


def kind_code(block_type: str) -> int:
    """The position of a block type in `BLOCK_TYPES`; its length for one that is not known."""
    for code, known in enumerate(BLOCK_TYPES):
        if known == block_type:
            return code
    return len(BLOCK_TYPES)


def storage_error(what: str, error: BaseException) -> FunesError:
    """An error of a native library as one that a person can act on."""
    text = str(error)
    if "No space left" in text or "os error 28" in text or getattr(error, "errno", None) == 28:
        return FunesError(
            f"{what}: the disk is full. What was stored before is kept.",
            "Free some space, then run `funes index` again.",
        )
    if "os error 13" in text or "Permission denied" in text:
        return FunesError(f"{what}: permission denied. What was stored before is kept.")
    return FunesError(f"{what}: {text.splitlines()[0] if text else type(error).__name__}")


class LexicalReader:
    """Searches the index in `folder`. Sees a commit after `refresh`. Safe to use from several threads.

    Raises:
        DerivedDamagedError: The files there are no index of this version.
        FunesError: They cannot be got at.
    """

    def __init__(self, folder: Path) -> None:
        import tantivy

        self._tantivy = tantivy
        self._folder = folder
        self._schema = _schema()
        self._analyzers = Analyzers()
        self._names: terms.Names | None = None
        self._dictionary: Any = None
        with guarded(folder, f"The word index in {folder} cannot be opened"):
            self._stamp = self._signature()
            self._open()

    def _open(self) -> None:
        """Open the index at its newest commit."""
        try:
            self._index = self._opened(self._folder)
        except ValueError as error:
            if "Lock" not in str(error):
                raise
            # Tantivy takes a lock in the folder of an index that it only reads, so in one that cannot be written to
            # it gets another folder. All files are open behind this.
            with readonly.links(self._folder) as links:
                self._index = self._opened(Path(links))
                self._searcher = self._index.searcher()
            self._linked = True
        else:
            self._searcher = self._index.searcher()
            self._linked = False

    def _opened(self, folder: Path) -> tantivy.Index:
        index = self._tantivy.Index.open(str(folder))
        self._analyzers.register(index)
        index.config_reader("manual", 0)
        index.reload()
        return index

    def refresh(self) -> bool:
        """Look at the newest commit. False when there is none since the last look."""
        try:
            signature = self._signature()
        except FileNotFoundError:  # it is being made again
            return False
        if signature == self._stamp:
            return False
        with guarded(self._folder, _NOT_READ):
            if self._linked:
                self._open()
            else:
                self._reload()
        self._stamp = signature
        self._dictionary = None  # that of an index that was built again is another
        return True

    def _reload(self) -> None:
        try:
            self._index.reload()
        except ValueError as error:
            if "Lock" not in str(error):
                raise
            self._open()
        else:
            self._searcher = self._index.searcher()

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Which commit is read, as `stamp_of` says it."""
        return self._stamp

    @property
    def size(self) -> int:
        """How many chunks are indexed."""
        return int(self._searcher.num_docs)

    def search(self, question: str, where: Filter, limit: int, *, exactly: bool = False) -> list[tuple[Scored, Found]]:
        """The best chunks for a question, best first; ties by newer time, then by key.

        A question without any word that can be asked for finds nothing. Raises `FunesError` when the index
        fails: a failed search is never an empty one.

        Args:
            exactly: Only chunks that hold an identifier of the question exactly.
        """
        if limit <= 0:
            return []
        with guarded(self._folder, _NOT_SEARCHED):
            asked = self._identifiers(question) if exactly else []
            if exactly and not asked:
                return []
            wanted = self._question(question)
            if wanted is None:
                return []
            if exactly:
                wanted = self._holding(wanted, asked)
            query = self._restricted(wanted, where)
            hits = self._searcher.search(query, limit + _SLACK, count=False).hits
            found = self._describe([address for _, address in hits])
        scored = [(Scored(key, float(score)), about) for (score, _), (key, about) in zip(hits, found, strict=True)]
        scored.sort(key=lambda hit: (-hit[0].score, -hit[1].ts, hit[0].key))
        return scored[:limit]

    def held(self, question: str, keys: Sequence[int]) -> list[float]:
        """How much of a question identifiers are that chunks hold exactly, each word by how rare it is, in [0, 1].

        Words and identifiers that are nowhere in the memory do not count. Raises `FunesError` when the index fails.
        """
        with guarded(self._folder, _NOT_SEARCHED):
            asked = self._identifiers(question)
            if not asked or not keys:
                return [0.0] * len(keys)
            whole = sum(rarity for _, rarity in asked) + sum(self._others(question))
            query, occur = self._tantivy.Query, self._tantivy.Occur
            clauses = [(occur.Must, query.const_score_query(self._among("key", list(keys)), 0.0))]
            clauses += [(occur.Should, query.const_score_query(name, rarity)) for name, rarity in asked]
            hits = self._searcher.search(query.boolean_query(clauses), len(keys) + _SLACK, count=False).hits
            found = self._values("key", [address for _, address in hits])
            shares = {key: min(1.0, score / whole) for key, (score, _) in zip(found, hits, strict=True)}
        return [shares.get(key, 0.0) for key in keys]

    def any_pass(self, where: Filter) -> bool:
        """Whether any chunk passes a filter. Raises `FunesError` when the index fails."""
        with guarded(self._folder, _NOT_READ):
            query = self._restricted(self._tantivy.Query.all_query(), where)
            return bool(self._searcher.search(query, 1, count=False).hits)

    def evidence(self, question: str, passages: Sequence[Passage]) -> list[Evidence]:
        """What each of some passages has of a question's words. Raises `FunesError` when the index fails."""
        question, latin = _cut(question)
        asked: dict[str, float] = {}
        with guarded(self._folder, _NOT_SEARCHED):
            for word in terms.question_words(latin)[: 2 * MOST_TERMS]:
                for stem in self._analyzers.words.analyze(word):
                    asked[stem] = self._rarity(self._searcher.doc_freq("words", stem))
        pairs = terms.bigrams(question)
        whole = sum(asked.values()) + len(pairs)
        identifiers = [(name, self._as_word(name)) for name in terms.identifiers(question)]
        names = terms.Names(_FEW_NAMES) if self._names is None else self._names
        self._names = None  # not to be shared: another thread makes its own
        found = []
        for passage in passages:
            text = passage.chunk.text
            exact, inner = names.find(text)
            own = set(self._analyzers.words.analyze(f"{text} {' '.join(inner)}"))
            beside = own.union(self._analyzers.words.analyze(f"{passage.before} {passage.after}"))
            met = sum(weight for stem, weight in asked.items() if stem in beside)
            met += sum(pair in text for pair in pairs)
            named = any(
                name in exact or word in own or (terms.is_hex(name) and terms.abbreviates(name, own))
                for name, word in identifiers
            )
            found.append(Evidence(met / whole if whole else 0.0, named))
        self._names = names
        return found

    def rows(self, keys: Sequence[int]) -> dict[int, Chunk]:
        """The rows of those keys that are here."""
        return {key: passage.chunk for key, passage in self.passages(keys).items()}

    def passages(self, keys: Sequence[int]) -> dict[int, Passage]:
        """The rows of those keys that are here, with what is indexed of their neighbours."""
        if not keys:
            return {}
        with guarded(self._folder, _NOT_READ):
            found = self._fetch_passages(self._among("key", list(keys)), len(keys) + _SLACK)
        return {passage.chunk.key: passage for passage in found}

    def session_rows(self, session_id: str) -> list[Chunk]:
        """All rows of a session, in no special order."""
        with guarded(self._folder, _NOT_READ):
            query = self._tantivy.Query.term_query(self._schema, "session", session_id, "basic")
            return self._fetch(query, self.size)

    def around(self, session_id: str, seq: int, reach: int, most: int) -> list[Chunk]:
        """The rows of a session near a position, in order.

        Args:
            seq: The position.
            reach: How far from it, at most.
            most: At most so many rows before it, and behind it; those nearest to it. Rows at it are all given.
        """
        query, occur = self._tantivy.Query, self._tantivy.Occur
        with guarded(self._folder, _NOT_READ):
            inside = query.range_query(self._schema, "seq", self._tantivy.FieldType.Integer, seq - reach, seq + reach)
            session = query.term_query(self._schema, "session", session_id, "basic")
            both = query.boolean_query([(occur.Must, session), (occur.Must, inside)])
            addresses = [address for _, address in self._searcher.search(both, self.size, count=False).hits]
            places = sorted(zip(self._values("seq", addresses), range(len(addresses)), strict=True))
            before = [place for at, place in places if at < seq][-most:]
            after = [place for at, place in places if at > seq][:most]
            own = [place for at, place in places if at == seq]
            rows = [p.chunk for p in self._passages_at([addresses[place] for place in (*before, *own, *after)])]
        return sorted(rows, key=lambda row: (row.seq, row.turn_uuid, row.block_idx, row.split_idx))

    def describe(self, keys: Sequence[int]) -> dict[int, Found]:
        """Session, time and type of those keys that are here."""
        if not keys:
            return {}
        with guarded(self._folder, _NOT_READ):
            hits = self._searcher.search(self._among("key", list(keys)), len(keys) + _SLACK, count=False).hits
            return dict(self._describe([address for _, address in hits]))

    def keys(self) -> set[int]:
        """The keys of all chunks."""
        if not self.size:
            return set()
        with guarded(self._folder, _NOT_READ):
            hits = self._searcher.search(self._tantivy.Query.all_query(), self.size, count=False).hits
            return {int(key) for key in self._values("key", [address for _, address in hits])}

    def sessions(self, prefix: str) -> list[str]:
        """Ids of the sessions that start so, in order."""
        with guarded(self._folder, _NOT_READ):
            return sorted(name for name, _ in self._searcher.terms_with_prefix("session", prefix))

    def count(self, field: str, value: str) -> int:
        """How many chunks have this `harness`, `kind`, `session` or `project`."""
        with guarded(self._folder, _NOT_READ):
            query = self._tantivy.Query.term_query(self._schema, field, value, "basic")
            result: Any = self._searcher.search(query, 1, count=True)
            return int(result.count)

    def values(self, field: str) -> list[str]:
        """The values of `harness`, `kind`, `session` or `project` that occur, in order."""
        with guarded(self._folder, _NOT_READ):
            return sorted(name for name, _ in self._searcher.terms_with_prefix(field, ""))

    def _signature(self) -> tuple[int, int, int]:
        return stamp_of(self._folder)

    def _among(self, field: str, values: list[int]) -> Any:
        query = self._tantivy.Query
        if len(values) > 64:
            return query.term_set_query(self._schema, field, values)
        return query.boolean_query(
            [(self._tantivy.Occur.Should, query.term_query(self._schema, field, value, "basic")) for value in values]
        )

    def _fetch(self, query: Any, limit: int) -> list[Chunk]:
        return [passage.chunk for passage in self._fetch_passages(query, limit)]

    def _fetch_passages(self, query: Any, limit: int) -> list[Passage]:
        if limit <= 0:
            return []
        return self._passages_at([address for _, address in self._searcher.search(query, limit, count=False).hits])

    def _passages_at(self, addresses: list[Any]) -> list[Passage]:
        keys = self._values("key", addresses)
        packer = Packer(self._folder, self._dictionary)
        self._dictionary = packer.dictionary
        rows: list[Passage] = []
        for key, address in zip(keys, addresses, strict=True):
            document = self._searcher.doc(address)
            common, own = document.get_first("common"), document.get_first("own")
            if common is None or own is None:
                raise DerivedDamagedError(self._folder, "it holds a passage without its row")
            rows.append(packer.unpack(int(key), bytes(common), bytes(own)))
        return rows

    def _describe(self, addresses: list[Any]) -> list[tuple[int, Found]]:
        columns = [self._values(name, addresses) for name in ("key", "session_hash", "ts", "kind_code")]
        return [(int(key), Found(int(s), int(t), int(k))) for key, s, t, k in zip(*columns, strict=True)]

    def _values(self, field: str, addresses: list[Any]) -> list[int]:
        return [0 if value is None else int(value) for value in self._searcher.fast_field_values(field, addresses)]

    def _question(self, question: str) -> Any:
        """The terms of a question as one query: any of them may match, each adds its weight."""
        question, latin = _cut(question)
        whole, _ = terms.names(question)
        pairs = list(dict.fromkeys(terms.bigrams(question)))
        words: dict[str, None] = {}
        for word in terms.question_words(latin):
            for stem in self._analyzers.words.analyze(word):
                words[stem] = None
        asked = [("words", word) for word in words] + [("exact", n) for n in whole] + [("pairs", p) for p in pairs]
        parts: list[tuple[str, str]] = self._rarest(asked)
        for word in words:
            if terms.is_hex(word):
                parts.extend(("words", longer) for longer in self._digests(word))
        clauses = []
        query = self._tantivy.Query
        for field, term in dict.fromkeys(parts):
            clause = query.term_query(self._schema, field, term, "basic" if field == "exact" else "freq")
            if WEIGHTS[field] != 1.0:
                clause = query.boost_query(clause, WEIGHTS[field])
            clauses.append((self._tantivy.Occur.Should, clause))
        return query.boolean_query(clauses) if clauses else None

    def _identifiers(self, question: str) -> list[tuple[Any, float]]:
        """Of each identifier in a question that occurs: what asks for it exactly, and how rare it is."""
        query, occur = self._tantivy.Query, self._tantivy.Occur
        found: list[tuple[Any, float]] = []
        for name in terms.identifiers(question[:LONGEST_QUESTION])[:MOST_TERMS]:
            places = [("exact", name)]
            word = self._as_word(name)
            if word is not None:
                places.append(("words", word))
            if terms.is_hex(name):
                places += [("words", digest) for digest in self._digests(name)]
            counts = [self._searcher.doc_freq(field, term) for field, term in places]
            asked = [
                (occur.Should, query.term_query(self._schema, field, term, "basic"))
                for (field, term), count in zip(places, counts, strict=True)
                if count
            ]
            if asked:
                found.append((query.boolean_query(asked), self._rarity(max(counts))))
        return found

    def _as_word(self, name: str) -> str | None:
        """The term of `words` that an identifier is; None for one with marks in it, which is none."""
        stems = self._analyzers.words.analyze(name) if name.isalnum() else []
        return stems[0] if len(stems) == 1 else None

    def _others(self, question: str) -> list[float]:
        """How rare each word of a question is that is not in an identifier, where it occurs at all."""
        question, latin = _cut(question)
        named = {word for name in terms.identifiers(question) for word in terms.question_words(name)}
        found = []
        for word in terms.question_words(latin)[:MOST_TERMS]:
            for stem in () if word in named else self._analyzers.words.analyze(word):
                count = self._searcher.doc_freq("words", stem)
                if count:
                    found.append(self._rarity(count))
        return found

    def _rarity(self, count: int) -> float:
        """What a term says that stands in `count` chunks."""
        return math.log(1.0 + self.size / (1.0 + count))

    def _holding(self, wanted: Any, asked: Sequence[tuple[Any, float]]) -> Any:
        """A query for what holds one of some `_identifiers`, scored as `wanted` scores it."""
        query, occur = self._tantivy.Query, self._tantivy.Occur
        named = query.boolean_query([(occur.Should, name) for name, _ in asked])
        return query.boolean_query([(occur.Must, query.const_score_query(named, 0.0)), (occur.Should, wanted)])

    def _rarest(self, asked: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those terms that occur; of a long question the rarest, in the order in which they were asked."""
        counted = []
        for order, (field, term) in enumerate(asked[: 50 * MOST_TERMS]):
            count = self._searcher.doc_freq(field, term)
            if count:
                counted.append((count, order, field, term))
        if len(counted) > MOST_TERMS:
            counted.sort()
            counted = sorted(counted[:MOST_TERMS], key=lambda item: item[1])
        return [(field, term) for _, _, field, term in counted]

    def _digests(self, word: str) -> list[str]:
        """Longer digests that a short one abbreviates, and shorter ones that abbreviate a long one."""
        longer = [name for name, _ in self._searcher.terms_with_prefix("words", word, limit=_PREFIXES) if name != word]
        shorter = [word[:size] for size in (7, 8, 10, 12) if size < len(word)]
        return longer + [name for name in shorter if self._searcher.doc_freq("words", name)]

    def _restricted(self, wanted: Any, where: Filter) -> Any:
        query, occur = self._tantivy.Query, self._tantivy.Occur
        musts: list[Any] = []
        for field, value in (("harness", where.harness), ("kind", where.block_type), ("session", where.session_id)):
            if value is not None:
                musts.append(query.term_query(self._schema, field, value, "basic"))
        if where.project is not None:
            names = project_names(where.project)
            musts.append(
                query.boolean_query(
                    [(occur.Should, query.term_query(self._schema, "project", name, "basic")) for name in names]
                )
            )
        if where.since is not None or where.until is not None:
            lower = UNDATED + 1 if where.since is None else max(where.since, UNDATED + 1)
            musts.append(
                query.range_query(
                    self._schema,
                    "ts",
                    self._tantivy.FieldType.Integer,
                    lower_bound=lower,
                    upper_bound=where.until,
                    include_lower=True,
                    include_upper=where.until is None,
                )
            )
        if not musts:
            return wanted
        clauses = [(occur.Must, wanted)]
        clauses.extend((occur.Must, query.const_score_query(must, 0.0)) for must in musts)
        return query.boolean_query(clauses)
