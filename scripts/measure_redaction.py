"""How well credentials are found, and what it costs.

python scripts/measure_redaction.py                 the table for SECURITY.md, printed
python scripts/measure_redaction.py --write         the table put between its markers in SECURITY.md
python scripts/measure_redaction.py --sessions DIR  redactions per MB and microseconds per chunk over transcripts;
                                                    with --show every value that would go, for a review by eye
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from secrets_corpus import cases, lookalikes  # noqa: E402

from funes_mcp.redaction import Redactor  # noqa: E402

BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"

#: Other seeds than the tests', so that the values are none that the detectors were fitted to.
SEEDS = range(100, 105)


def table(redactor: Redactor) -> str:
    """Recall by kind and the share of false alarms, as Markdown."""
    total: Counter[str] = Counter()
    found: Counter[str] = Counter()
    benign = wrong = 0
    for seed in SEEDS:
        for case in cases(seed):
            total[case.kind] += 1
            found[case.kind] += not case.leaks(redactor.redact(case.text).text)
        for _context, text in lookalikes(seed):
            benign += 1
            wrong += redactor.redact(text).text != text
    lines = [
        f"{len(total)} kinds, {total.total():,} texts: **{_percent(found.total(), total.total())} found**. "
        f"{benign:,} texts that only look like it: **{_percent(wrong, benign)} false alarms**.",
        "",
        "| kind | texts | found |",
        "|---|---|---|",
        *(f"| {kind} | {total[kind]} | {_percent(found[kind], total[kind])} |" for kind in total),
    ]
    return "\n".join(lines)


def _percent(part: int, whole: int) -> str:
    """Rounded down for what is found, so that 100 % means all."""
    return f"{int(1000 * part / whole) / 10:g} %"


def write(text: str) -> None:
    """Put the table between the markers of SECURITY.md."""
    path = ROOT / "SECURITY.md"
    page = path.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    path.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")


def over(redactor: Redactor, folder: Path, *, show: bool) -> None:
    """Read transcripts as indexing does, and count what would be replaced."""
    from funes_mcp.discovery import load_adapters, sources_at
    from funes_mcp.memory.chunk import render, split
    from funes_mcp.traces.model import Tally, Turn

    adapters, _broken = load_adapters()
    blocks = [
        render(block)
        for adapter, source in sources_at(adapters, folder, Tally())
        for event in adapter.read(source, None)
        if isinstance(event, Turn)
        for block in event.blocks
    ]
    size = sum(len(text.encode("utf-8", "replace")) for text in blocks) / 1e6
    chunks = sum(len(split(text)) for text in blocks)
    counts: Counter[str] = Counter()
    started = time.process_time()
    for text in blocks:
        counts += redactor.redact(text).counts
    spent = time.process_time() - started
    print(f"{len(blocks):,} blocks, {chunks:,} chunks, {size:.1f} MB")
    print(f"{counts.total()} redactions, {counts.total() / size:.3f} per MB: {dict(counts.most_common())}")
    print(f"{spent / chunks * 1e6:.1f} microseconds of processor time per chunk")
    if show:
        for text in blocks:
            for finding in redactor.scan(text):
                before = text[max(0, finding.start - 60) : finding.start]
                print(f"{finding.kind} ({finding.origin}): {before!r} -> {text[finding.start : finding.end]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--sessions", type=Path)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    redactor = Redactor()
    redactor.warm()
    if redactor.failure:
        raise SystemExit(redactor.failure)
    if arguments.sessions:
        over(redactor, arguments.sessions, show=arguments.show)
    elif arguments.write:
        write(table(redactor))
    else:
        print(table(redactor))


if __name__ == "__main__":
    main()
