"""Tokens that are known by their own format, wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from funes_mcp.redaction.spans import BY_FORMAT, Span
from funes_mcp.redaction.values import is_standin, looks_random, substance

#: Formats that begin with letters of their own: a name, the first two bytes, the format. As their providers
#: document them; lengths are lower bounds, because providers have changed them before.
_HEADED: Final[tuple[tuple[str, str, str], ...]] = (
    ("anthropic-key", "sk", r"sk-ant-[A-Za-z0-9_-]{20,}"),
    ("openrouter-key", "sk", r"sk-or-v1-[a-f0-9]{40,}"),
    ("langfuse-key", "sk", r"sk-lf-[a-f0-9-]{36}"),
    ("openai-key", "sk", r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}"),
    ("api-key", "sk", r"sk-[A-Za-z0-9]{20,}"),
    ("stripe-key", "sk rk", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("elevenlabs-key", "sk", r"sk_[a-f0-9]{40,}"),
    ("webhook-secret", "wh", r"whsec_[A-Za-z0-9+/=]{24,}"),
    ("github-token", "gh gi", r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,}"),
    ("gitlab-token", "gl", r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|agent|soat|imt|oas|ffct|wt)-[A-Za-z0-9_.=-]{20,}"),
    ("gitlab-token", "GR", r"GR1348941[A-Za-z0-9_-]{20,}"),
    ("huggingface-token", "hf ap", r"hf_[A-Za-z0-9]{30,}|api_org_[A-Za-z0-9]{30,}"),
    ("xai-key", "xa", r"xai-[A-Za-z0-9]{60,}"),
    ("groq-key", "gs", r"gsk_[A-Za-z0-9]{40,}"),
    ("perplexity-key", "pp", r"pplx-[A-Za-z0-9]{40,}"),
    ("replicate-token", "r8", r"r8_[A-Za-z0-9]{35,}"),
    ("nvidia-key", "nv", r"nvapi-[A-Za-z0-9_-]{50,}"),
    ("tavily-key", "tv", r"tvly-[A-Za-z0-9_-]{20,}"),
    ("cerebras-key", "cs", r"csk-[a-z0-9]{40,}"),
    ("google-key", "AI", r"AIza[0-9A-Za-z_-]{35}"),
    ("google-oauth", "GO ya 1/", r"GOCSPX-[A-Za-z0-9_-]{24,}|ya29\.[A-Za-z0-9_-]{20,}|1//0[A-Za-z0-9_-]{30,}"),
    ("aws-access-key-id", "AK AS AB AC", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    ("aws-session-token", "Fw IQ", r"(?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[A-Za-z0-9/+=]{50,}"),
    ("aws-bedrock-key", "AB", r"ABSK[A-Za-z0-9+/]{100,}={0,2}"),
    ("slack-token", "xo", r"xox[abeoprs](?:\.xox[a-z])?-[A-Za-z0-9-]{20,}"),
    ("slack-token", "xa", r"xapp-\d-[A-Z0-9]{8,}-\d{8,}-[a-f0-9]{32,}"),
    ("npm-token", "np", r"npm_[A-Za-z0-9]{36,}"),
    ("pypi-token", "py", r"pypi-[A-Za-z0-9_-]{50,}"),
    ("rubygems-key", "ru", r"rubygems_[a-f0-9]{48}"),
    ("sendgrid-key", "SG", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    ("twilio-key", "SK", r"SK[0-9a-f]{32}"),
    ("mailgun-key", "ke", r"key-[0-9a-f]{32}"),
    ("digitalocean-token", "do", r"do[opr]_v1_[a-f0-9]{64}"),
    ("cloudflare-token", "cf v1", r"cf(?:k|ut|at)_[A-Za-z0-9]{40,}|v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}"),
    (
        "jwt",
        "ey",
        r"eyJ[A-Za-z0-9_-]{8,}\.(?:eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
        r"|[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})",
    ),
    ("shopify-token", "sh", r"shp(?:at|ca|pa|ss|ua)_[a-fA-F0-9]{32}"),
    ("square-token", "sq EA", r"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}|EAAA[A-Za-z0-9_-]{60}"),
    ("facebook-token", "EA", r"EAA[A-Z][A-Za-z0-9]{100,}"),
    ("linear-key", "li", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    ("notion-token", "nt se", r"ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}"),
    ("figma-token", "fi", r"fig[dour]_[A-Za-z0-9_-]{40,}"),
    ("postman-key", "PM", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    ("newrelic-key", "NR", r"NR(?:AK|II|RA)-[A-Za-z0-9_-]{27,}"),
    ("grafana-token", "gl", r"glsa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8}|glc_[A-Za-z0-9+/=]{40,}"),
    ("sentry-token", "sn", r"sntry[su]_[A-Za-z0-9+/=_-]{60,}"),
    ("doppler-token", "dp", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{40,}"),
    ("vault-token", "hv", r"hv[sbr]\.[A-Za-z0-9_-]{24,}"),
    ("databricks-token", "da", r"dapi[a-f0-9]{32}(?:-\d)?"),
    ("planetscale-token", "ps", r"pscale_(?:tkn|pw|oauth)_[\w.=-]{32,}"),
    ("tailscale-key", "ts", r"tskey-[a-z]{2,12}-[A-Za-z0-9]{8,}-[A-Za-z0-9]{20,}"),
    ("fly-token", "fm fo", r"fm[12][ar]?_[A-Za-z0-9+/=_-]{60,}|fo1_[A-Za-z0-9_-]{40,}"),
    ("netlify-token", "nf", r"nf[pcoub]_[A-Za-z0-9]{36,}"),
    ("supabase-key", "sb", r"sbp_[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{24,}"),
    ("airtable-token", "pa", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    ("atlassian-token", "AT", r"ATATT3[A-Za-z0-9_=-]{60,}|ATBB[A-Za-z0-9]{32}"),
    ("docker-token", "dc", r"dckr_[op]at_[A-Za-z0-9_-]{27,}"),
    ("docker-swarm-key", "SW", r"SWMTKN-1-[a-z0-9]{40,}-[a-z0-9]{20,}|SWMKEY-1-[A-Za-z0-9+/]{40,}"),
    ("age-key", "AG", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    ("1password-token", "op A3", r"ops_eyJ[A-Za-z0-9+/=_-]{100,}|A3-[A-Z0-9]{6}-[A-Z0-9-]{23,32}"),
    ("langsmith-key", "ls", r"lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}"),
    ("pinecone-key", "pc", r"pcsk_[A-Za-z0-9]{5,6}_[A-Za-z0-9]{50,}"),
    ("resend-key", "re", r"re_[A-Za-z0-9]{7,9}_[A-Za-z0-9]{22,26}"),
    ("dropbox-token", "sl", r"sl\.(?:u\.)?[A-Za-z0-9_-]{100,}"),
    ("posthog-key", "ph", r"ph[xsr]_[A-Za-z0-9]{40,}"),
    ("circleci-token", "CC", r"CCIP(?:AT|RJ)_[A-Za-z0-9]{20,}_[a-f0-9]{40}"),
    ("buildkite-token", "bk", r"bk(?:ua|aj|ct)_[a-f0-9]{40}"),
    ("pulumi-token", "pu", r"pul-[a-f0-9]{40}"),
    ("sonar-token", "sq", r"sq[upa]_[a-f0-9]{40}"),
    ("crates-token", "ci", r"cio[A-Za-z0-9]{32}"),
    (
        "discord-token",
        "MD MT Mj Mz ND NT Nj Nz OD OT Oj Oz",
        r"[MNO][A-Za-z0-9]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}",
    ),
)

#: Formats without a beginning of their own: a name, the byte before their long part and bytes that stand at most
#: 80 before it, how far the format begins before the long part at most, and the format. A group is the secret.
_ANCHORED: Final[tuple[tuple[str, bytes, bytes, int, str], ...]] = (
    ("telegram-token", b":", b"", 11, r"\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    ("terraform-token", b".", b".atlasv1.", 23, r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}"),
    ("azure-secret", b"~", b"Q~", 6, r"[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
    (
        "slack-webhook",
        b"/",
        b"hooks.slack.com",
        80,
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?:[A-Za-z0-9]+/){2,3}([A-Za-z0-9]{18,})",
    ),
    ("discord-webhook", b"/", b"/api/webhooks/", 40, r"/api/webhooks/\d{15,21}/([A-Za-z0-9_-]{50,})"),
    ("teams-webhook", b"/", b"/IncomingWebhook/", 20, r"/IncomingWebhook/([a-f0-9]{32}/[a-f0-9-]{36})"),
    ("sas-signature", b"=%", b"sig=", 80, r"[?&;]sig=([A-Za-z0-9%/+]{36,}(?:%3[Dd]|=)+)"),
)

#: Password hashes as `crypt` and its successors write them.
_HASH: Final = (
    rb"\$(?:2[abxy]?\$\d\d\$[./A-Za-z0-9]{53}|[156y]\$(?:[^\s$\"'\\]{1,24}\$){1,2}[./A-Za-z0-9]{20,}"
    rb"|apr1\$[^\s$]{1,8}\$[./A-Za-z0-9]{22}|argon2(?:id?|d)\$v=\d+\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+)"
)

#: Kinds whose format is so loose that the value has to look random as well.
_LOOSE: Final = frozenset({"api-key", "resend-key", "square-token", "twilio-key", "azure-secret", "crates-token"})

_WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_ESCAPES: Final = frozenset(b"nrtbf")
_PREFIX: Final = re.compile(
    rb"[A-Za-z]{1,8}[-_.](?:(?:proj|svcacct|admin|None|ant|or|v1|live|test|api03|api|oauth|pat|secret)[-_])*"
)

#: Characters that a token's run consists of; every other byte is a blank.
_RUN: Final = bytes(120 if (48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122 or c in b"_-") else 32 for c in range(256))
_CASE: Final = bytes(97 if 97 <= c <= 122 else 65 if 65 <= c <= 90 else 48 if 48 <= c <= 57 else 32 for c in range(256))
_LONG: Final = b"x" * 16

#: How many parts a token may have before its long one: `SG.….…`, `1//0…`, `123456:AA…`.
_PARTS: Final = 3


def runs_of(text: bytes) -> list[tuple[int, int]]:
    """Where sixteen or more letters, digits, dashes and underscores in a row hold a digit, or change case
    as often as no name does.

    Cheap, and nearly every token is or holds such a run: a text without one need not be searched for tokens.
    """
    runs = text.translate(_RUN)
    start = runs.find(_LONG)
    if start < 0:
        return []
    found: list[tuple[int, int]] = []
    size = len(text)
    shape = text.translate(_CASE)
    while start >= 0:
        end = runs.find(b" ", start)
        if end < 0:
            end = size
        if (
            shape.find(b"0", start, end) >= 0
            or shape.count(b"aA", start, end) * 11 >= (end - start) * 2
            or text.find(b"hf_", start, start + 4) >= 0  # drawn from letters alone
        ):
            found.append((start, end))
        start = runs.find(_LONG, end)
    return found


@cache
def _headed() -> dict[bytes, list[tuple[str, re.Pattern[bytes]]]]:
    table: dict[bytes, list[tuple[str, re.Pattern[bytes]]]] = {}
    for kind, heads, pattern in _HEADED:
        compiled = re.compile(pattern.encode())
        for head in dict.fromkeys(heads.split()):
            table.setdefault(head.encode(), []).append((kind, compiled))
    return table


@cache
def _anchored() -> dict[int, list[tuple[str, bytes, int, re.Pattern[bytes]]]]:
    table: dict[int, list[tuple[str, bytes, int, re.Pattern[bytes]]]] = {}
    for kind, before, near, back, pattern in _ANCHORED:
        for byte in before:
            table.setdefault(byte, []).append((kind, near, back, re.compile(pattern.encode())))
    return table


@cache
def _mailchimp() -> re.Pattern[bytes]:
    return re.compile(rb"[0-9a-f]{32}-us\d{1,2}(?![\w-])")


@cache
def _hash() -> re.Pattern[bytes]:
    return re.compile(_HASH)


def starts_value(text: bytes, at: int) -> bool:
    """Whether a value can begin at `at`: nothing before it belongs to a word, or only an escape like `\\n`."""
    if at == 0:
        return True
    before = text[at - 1]
    if before not in _WORD:
        return True
    if at >= 2 and text[at - 2] == 92 and before in _ESCAPES:  # backslash
        return True
    return at >= 3 and text[at - 3] == 37  # percent encoding


def find_tokens(text: bytes, runs: list[tuple[int, int]]) -> Iterator[Span]:
    """Every token of a known format that is no stand-in. `runs` is what `runs_of` found."""
    headed, anchored = _headed(), _anchored()
    done = 0
    for start, end in runs:
        places = _beginnings(text, start) if start >= done else []
        while places:
            at = places.pop(0)
            for kind, pattern in headed.get(text[at : at + 2], ()):
                match = pattern.match(text, at)
                if match is not None and _is_real(kind, match[0]):
                    yield Span(at, match.end(), kind, BY_FORMAT)
                    done = match.end()
                    places = [done] if done < end else []  # another may follow without a gap
                    break
        for kind, near, back, pattern in anchored.get(text[start - 1], ()) if start else ():
            if near and near not in text[max(0, start - 80) : start]:
                continue
            match = pattern.search(text, max(0, start - back), start + 400)
            if match is not None and starts_value(text, match.start()):
                group = 1 if pattern.groups else 0
                if _is_real(kind, match[group]):
                    yield Span(*match.span(group), kind, BY_FORMAT)
        if text.find(b"-us", end - 5, end) >= 0:
            match = _mailchimp().search(text, start, end + 1)
            if match is not None and starts_value(text, match.start()) and _is_real("mailchimp-key", match[0]):
                yield Span(*match.span(), "mailchimp-key", BY_FORMAT)


def find_hashes(text: bytes) -> Iterator[Span]:
    """Hashes of passwords, which can be guessed from."""
    for match in _hash().finditer(text):
        if len(set(match[0][-22:])) >= 10:
            yield Span(*match.span(), "password-hash", BY_FORMAT)


def _beginnings(text: bytes, start: int) -> list[int]:
    """Where the token may begin whose long part begins at `start`."""
    places: list[int] = []
    at = start
    for _ in range(_PARTS + 1):
        if text[at - 1 : at] == b"\\" and text[at] in _ESCAPES:
            places.append(at + 1)
            break
        places.append(at)
        if text[at - 1 : at] == b"%":  # two digits of percent encoding begin the run
            places.append(at + 2)
        if at == 0 or text[at - 1] not in b"./:":
            break
        left = at - 1
        while left > 0 and at - left < 80 and text[left - 1] in _WORD:
            left -= 1
        at = left
    return places


def _is_real(kind: str, value: bytes) -> bool:
    if kind == "jwt":
        return len(set(value)) >= 16
    body = _PREFIX.sub(b"", value, count=1)
    if is_standin(body) or len(set(body)) < 8:
        return False
    return looks_random(body, 12) if kind in _LOOSE else substance(body) >= 12
