"""Made-up credentials and things that look like them, for measuring the search for credentials.

Nothing in here is a credential, and no line of this file has the form of one: values are drawn from a seeded
generator when they are asked for, and known beginnings are put together from parts.
"""

# ruff: noqa: E501  (a table reads best with one row a line)

from __future__ import annotations

import base64
import json
import random
import string
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from funes_mcp.redaction import Redactor

_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_LOWER = string.ascii_lowercase + string.digits
_UPPER = string.ascii_uppercase + string.digits
_URLSAFE = _ALNUM + "-_"
_BASE64 = _ALNUM + "+/"
_SYMBOLS = "!@#%^*+=?~"
_SPECIAL = "+/$"


@cache
def shared_redactor(cache_dir: Path | None) -> Redactor:
    """One redactor for all tests of a process: loading the library's rules takes a while."""
    redactor = Redactor(cache_dir)
    redactor.warm()
    return redactor


def redactor_of(config: pytest.Config) -> Redactor:
    """The shared redactor, its compiled rules kept from run to run in pytest's own cache."""
    cache = getattr(config, "cache", None)  # the plugin may be switched off
    return shared_redactor(cache.mkdir("secret-rules") if cache is not None else None)


Maker = Callable[[random.Random], str]


def draw(rng: random.Random, alphabet: str, size: int) -> str:
    """`size` characters of an alphabet, with at least one digit when the alphabet has digits."""
    while True:
        value = "".join(rng.choice(alphabet) for _ in range(size))
        if not set(alphabet) & set(string.digits) or any(c.isdigit() for c in value):
            return value


def _headed(head: str, alphabet: str, size: int, tail: str = "") -> Maker:
    return lambda rng: head.replace("~", "") + draw(rng, alphabet, size) + tail


@dataclass(frozen=True)
class Kind:
    """A kind of credential.

    Attributes:
        name: What SECURITY.md calls it.
        make: Draws one.
        own: Whether its format alone tells it; otherwise `lines` gives it a name.
        lines: Texts in which it stands in practice, `@` being the value. One-line texts are also put into the
            contexts; longer ones (files) are escaped and cut, too.
    """

    name: str
    make: Maker
    own: bool = True
    lines: tuple[str, ...] = ()


def _password(rng: random.Random) -> str:
    while True:
        value = draw(rng, _ALNUM + _SYMBOLS, rng.randint(12, 20))
        if any(c in _SYMBOLS for c in value) and any(c.isupper() for c in value) and value[0].isalnum():
            return value


def _special_password(rng: random.Random) -> str:
    size = rng.randint(14, 22)
    value = list(draw(rng, _ALNUM, size))
    for symbol in _SPECIAL:
        value[rng.randrange(2, size - 1)] = symbol
    return "".join(value)


def _human_password(rng: random.Random) -> str:
    words = ("Sunflower", "Mountain", "Octopus", "Thunder", "Pineapple", "Waterfall", "Backpack", "Lighthouse")
    return f"{rng.choice(words)}{rng.randint(1950, 2030)}{rng.choice('!@#?')}"


def _passphrase(rng: random.Random) -> str:
    words = [
        "copper",
        "violin",
        "meadow",
        "lantern",
        "harbor",
        "velvet",
        "cactus",
        "pepper",
        "walnut",
        "saddle",
        "bishop",
        "tundra",
        "magnet",
    ]
    return "-".join(rng.sample(words, 5))


def _jwt(rng: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    head = part({"alg": "HS" + "256", "typ": "JWT"})
    return (
        f"{head}.{part({'sub': draw(rng, _LOWER, 12), 'iat': rng.randint(10**9, 2 * 10**9)})}.{draw(rng, _URLSAFE, 43)}"
    )


def _discord(rng: random.Random) -> str:
    number = str(rng.randint(10**17, 10**18 - 1)).encode()
    return base64.b64encode(number).decode().rstrip("=") + "." + draw(rng, _URLSAFE, 6) + "." + draw(rng, _URLSAFE, 38)


def _key_lines(rng: random.Random, lines: int) -> str:
    return "\n".join(draw(rng, _BASE64, 64) for _ in range(lines)) + "\n" + draw(rng, _BASE64, 22) + "=="


def _basic(rng: random.Random) -> str:
    return base64.b64encode(f"deploy:{_password(rng)}".encode()).decode()


def _dashed(kind: str) -> tuple[str, str]:
    five = "-" * 5
    return f"{five}BEGIN {kind}{five}", f"{five}END {kind}{five}"


def _pem(kind: str) -> str:
    begin, end = _dashed(kind)
    return f"{begin}\n@\n{end}\n"


_NAMED_TOKEN = (
    "@NAME@=@",
    'export @NAME@="@"',
    '"@name@": "@"',
    "@name@: @",
    "client = Client(@name@='@')",
)


def _named(name: str, extra: tuple[str, ...] = ()) -> tuple[str, ...]:
    return tuple(t.replace("@NAME@", name.upper()).replace("@name@", name.lower()) for t in _NAMED_TOKEN) + extra


_PASSWORD_LINES = (
    *_named("db_password"),
    "password: @",
    "password = '@'",
    'const password = "@";',
    "<password>@</password>",
    "mysqldump --password=@ shop",
    "Server=db;User Id=sa;Password=@;Encrypt=True",
)

KINDS: tuple[Kind, ...] = (
    Kind("Anthropic", _headed("sk-~ant-api03-", _URLSAFE, 93, "AA")),
    Kind("OpenAI project", lambda r: "sk-" + "proj-" + draw(r, _URLSAFE, 74) + "T3" + "BlbkFJ" + draw(r, _URLSAFE, 74)),
    Kind("OpenAI", lambda r: "sk-" + draw(r, _ALNUM, 20) + "T3" + "BlbkFJ" + draw(r, _ALNUM, 20)),
    Kind("OpenRouter", _headed("sk-~or-v1-", _HEX, 64)),
    Kind("DeepSeek and other sk-", _headed("sk~-", _HEX, 32)),
    Kind("Hugging Face", _headed("hf~_", string.ascii_letters, 34)),
    Kind("xAI", _headed("xai~-", _ALNUM, 80)),
    Kind("Groq", _headed("gsk~_", _ALNUM, 52)),
    Kind("Google API", _headed("AI~za", _URLSAFE, 35)),
    Kind("Google OAuth secret", _headed("GOC~SPX-", _URLSAFE, 28)),
    Kind("Google access token", _headed("ya~29.", _URLSAFE, 120)),
    Kind("GitHub personal", _headed("gh~p_", _ALNUM, 36)),
    Kind("GitHub OAuth", _headed("gh~o_", _ALNUM, 36)),
    Kind("GitHub fine-grained", lambda r: "github" + "_pat_" + draw(r, _ALNUM, 22) + "_" + draw(r, _ALNUM, 59)),
    Kind("GitLab", _headed("gl~pat-", _URLSAFE, 20)),
    Kind("Slack bot", lambda r: "xo" + "xb-" + "-".join((draw(r, string.digits, 12), draw(r, string.digits, 13), draw(r, _ALNUM, 24)))),
    Kind("Slack webhook", lambda r: draw(r, _ALNUM, 24), False, ("https://hooks.slack." + "com/services/T0AB3CD45/B0EF6GH78/@",)),
    Kind("Stripe", _headed("sk_~live_", _ALNUM, 24)),
    Kind("Stripe restricted", _headed("rk_~live_", _ALNUM, 99)),
    Kind("npm", _headed("np~m_", _ALNUM, 36)),
    Kind("PyPI", _headed("pypi-~AgEIcHlwaS5vcmc", _URLSAFE, 150)),
    Kind("AWS access key id", _headed("AK~IA", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16)),
    Kind(
        "AWS secret key",
        lambda r: draw(r, _BASE64, 40),
        False,
        _named("aws_secret_access_key", ("AWS Secret Access Key [None]: @",)),
    ),
    Kind("AWS session token", _headed("IQo~Jb3JpZ2lu", _BASE64, 300), False, _named("aws_session_token")),
    Kind("Azure storage key", lambda r: draw(r, _BASE64, 86) + "==", False, ("DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=@;EndpointSuffix=core.windows.net",)),
    Kind("Azure service bus", lambda r: draw(r, _BASE64, 43) + "=", False, ("Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=@",)),
    Kind("Azure client secret", lambda r: draw(r, _ALNUM, 3) + "8Q" + "~" + draw(r, _ALNUM, 34)),
    Kind("Twilio key", _headed("S~K", _HEX, 32)),
    Kind("Twilio auth token", lambda r: draw(r, _HEX, 32), False, _named("twilio_auth_token")),
    Kind("SendGrid", lambda r: "S" + "G." + draw(r, _URLSAFE, 22) + "." + draw(r, _URLSAFE, 43)),
    Kind("Mailgun", _headed("ke~y-", _HEX, 32)),
    Kind("Mailchimp", lambda r: draw(r, _HEX, 32) + "-us" + str(r.randint(1, 20))),
    Kind("Datadog", lambda r: draw(r, _HEX, 32), False, _named("datadog_api_key", ("DD_API_KEY=@", "DD-API-KEY: @"))),
    Kind("Cloudflare", lambda r: draw(r, _URLSAFE, 40), False, _named("cloudflare_api_token")),
    Kind("DigitalOcean", _headed("do~p_v1_", _HEX, 64)),
    Kind("Discord bot", _discord),
    Kind("Telegram bot", lambda r: draw(r, "123456789", 10) + ":AA" + draw(r, _URLSAFE, 33)),
    Kind("JWT", _jwt),
    Kind("Shopify", _headed("shp~at_", _HEX, 32)),
    Kind("Linear", _headed("lin_~api_", _ALNUM, 40)),
    Kind("Notion", _headed("nt~n_", _ALNUM, 46)),
    Kind("Figma", _headed("fi~gd_", _URLSAFE, 40)),
    Kind("Postman", lambda r: "PM" + "AK-" + draw(r, _HEX, 24) + "-" + draw(r, _HEX, 34)),
    Kind("New Relic", _headed("NR~AK-", _UPPER, 27)),
    Kind("Grafana", lambda r: "gl" + "sa_" + draw(r, _ALNUM, 32) + "_" + draw(r, _HEX, 8)),
    Kind("Vault", _headed("hv~s.", _URLSAFE, 95)),
    Kind("Terraform Cloud", lambda r: draw(r, _ALNUM, 14) + ".at" + "lasv1." + draw(r, _URLSAFE, 67)),
    Kind("Databricks", _headed("da~pi", _HEX, 32)),
    Kind("Docker Hub", _headed("dckr_~pat_", _URLSAFE, 27)),
    Kind("Supabase", _headed("sb~p_", _HEX, 40)),
    Kind("Atlassian", lambda r: "ATA" + "TT3" + draw(r, _URLSAFE, 180) + "=" + draw(r, "ABCDEF0123456789", 8)),
    Kind("Airtable", lambda r: "pat" + draw(r, _ALNUM, 14) + "." + draw(r, _HEX, 64)),
    Kind("Tailscale", lambda r: "ts" + "key-auth-" + draw(r, _ALNUM, 16) + "-" + draw(r, _ALNUM, 32)),
    Kind("age", _headed("AGE-~SECRET-KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
    Kind("password", _password, False, (*_PASSWORD_LINES, "the password is @", "PGPASSWORD='@' psql -h db shop")),
    Kind("password with + / $", _special_password, False, _PASSWORD_LINES),
    Kind("password made by a person", _human_password, False, _PASSWORD_LINES),
    Kind("passphrase", _passphrase, False, ("passphrase: '@'", "export BACKUP_PASSPHRASE=@", '"passphrase": "@"')),
    Kind("token by name", lambda r: draw(r, _ALNUM, 32), False, _named("service_token")),
    Kind("secret by name", lambda r: draw(r, _URLSAFE, 40), False, _named("client_secret")),
    Kind("API key by name", lambda r: draw(r, _HEX, 40), False, _named("search_api_key", ("X-Api-Key: @", "https://api.search.io/v1?api_key=@&q=shoes"))),
    Kind("API key that is a UUID", lambda r: str(uuid.UUID(int=r.getrandbits(128), version=4)), False, _named("heroku_api_key")),
    Kind("signing key", lambda r: draw(r, _BASE64, 64), False, _named("signing_key", ("DJANGO_SECRET_KEY='@'",))),
    Kind("password in a URL", _human_password, False, tuple(f"{s}://app:@@db.internal:5432/shop" for s in ("postgres", "mysql", "mongodb+srv", "redis", "amqp", "https"))),
    Kind("token in a URL", lambda r: draw(r, _ALNUM, 40), False, ("git clone https://@@git.shop.io/team/shop.git", "https://oauth2:@@git.shop.io/team/shop.git")),
    Kind("Authorization: Bearer", lambda r: draw(r, _URLSAFE, 48), False, ("Authorization: Bearer @", "curl -H 'Authorization: Bearer @' https://api.shop.io", '"Authorization": "Bearer @"')),
    Kind("Authorization: Basic", _basic, False, ("Authorization: Basic @", "-H \"authorization: Basic @\"")),
    Kind("cookie", lambda r: draw(r, _ALNUM, 40), False, ("Cookie: theme=dark; sessionid=@; lang=en", "Set-Cookie: connect.sid=@; Path=/; HttpOnly", "curl -b 'session=@' https://shop.io")),
    Kind("curl -u", _password, False, ("curl -u deploy:@ https://api.shop.io/v1", "curl -s --user 'deploy:@' https://api.shop.io")),
    Kind("command-line flag", _password, False, ("mysql -h db -u root -p@ shop", "sshpass -p '@' ssh root@10.0.0.5", "deploy --password @ --dry-run", "docker login -u shop -p @ registry.shop.io", "redis-cli -h cache -a @ ping")),
    Kind("password in code", _password, False, ("requests.get(url, auth=('deploy', '@'))", "SetPassword(\"@\")", "':password' => '@',", "ssh-keygen -t ed25519 -N '@' -f key", "jdbc:postgresql://db/shop?user=app&password=@")),
    Kind("password, other languages", _password, False, ("contraseña: @", "пароль: @", "密码：@", "パスワード: @", "Passwort: @")),
    Kind("container environment", lambda r: draw(r, _ALNUM, 32), False, ("- name: SERVICE_TOKEN\n  value: \"@\"", '{"name":"SERVICE_TOKEN","value":"@"}', "ENV SERVICE_TOKEN=@")),
    Kind("framework secret", lambda r: draw(r, _HEX, 128), False, ("secret_key_base: @", "SECRET_KEY_BASE=@")),
    Kind("servlet session", lambda r: draw(r, "0123456789ABCDEF", 32), False, ("Set-Cookie: JSESSIONID=@; Path=/", "JSESSIONID=@")),
    Kind("SQL", _password, False, ("CREATE USER app IDENTIFIED BY '@';", "ALTER ROLE app WITH PASSWORD '@';")),
    Kind("bcrypt hash", lambda r: "$2" + "b$12$" + draw(r, _ALNUM + "./", 53), False, ("shop:@",)),
    Kind("RSA private key", lambda r: _key_lines(r, 24), False, (_pem("RSA PRIVATE " + "KEY"),)),
    Kind("PKCS#8 private key", lambda r: _key_lines(r, 24), False, (_pem("PRIVATE " + "KEY"),)),
    Kind("EC private key", lambda r: _key_lines(r, 2), False, (_pem("EC PRIVATE " + "KEY"),)),
    Kind("OpenSSH private key", lambda r: _key_lines(r, 6), False, (_pem("OPENSSH PRIVATE " + "KEY"),)),
    Kind("PGP private key", lambda r: _key_lines(r, 16), False, (_pem("PGP PRIVATE " + "KEY BLOCK"),)),
    Kind("private key without its end", lambda r: _key_lines(r, 20), False, (_dashed("RSA PRIVATE " + "KEY")[0] + "\n@",)),
    Kind(
        "GCP service account",
        lambda r: _key_lines(r, 24).replace("\n", "\\n"),
        False,
        ('{\n  "type": "service_account",\n  "project_id": "shop",\n  "private_key": "' + _pem("PRIVATE " + "KEY").replace("\n", "\\n") + '",\n  "client_email": "x@shop.iam.gserviceaccount.com"\n}',),
    ),
    Kind(".netrc", _password, False, ("machine api.shop.io login deploy password @", "machine api.shop.io\n  login deploy\n  password @\n")),
    Kind(".pgpass", _password, False, ("db.internal:5432:shop:app:@",)),
    Kind(".npmrc", lambda r: draw(r, _BASE64, 48), False, ("//registry.shop.io/:_authToken=@", "//registry.shop.io/:_password=@")),
    Kind(".pypirc", _password, False, ("[pypi]\nusername = shop\npassword = @\n",)),
    Kind("Docker config", _basic, False, ('{\n  "auths": {\n    "registry.shop.io": {\n      "auth": "@"\n    }\n  }\n}',)),
    Kind("kubeconfig", lambda r: base64.b64encode((_dashed("RSA PRIVATE " + "KEY")[0] + "\n" + _key_lines(r, 6)).encode()).decode(), False, ("users:\n- name: shop\n  user:\n    client-key-data: @\n",)),
    Kind("kubeconfig token", lambda r: draw(r, _ALNUM, 48), False, ("users:\n- name: shop\n  user:\n    token: @\n",)),
    Kind("Kubernetes secret", lambda r: base64.b64encode(_password(r).encode()).decode(), False, ("apiVersion: v1\nkind: Secret\nmetadata:\n  name: shop\ntype: Opaque\ndata:\n  db: @\n",)),
    Kind("JSON web key", lambda r: draw(r, _URLSAFE, 43), False, ('{"kty":"EC","crv":"P-256","d":"@","use":"sig"}',)),
)  # fmt: skip

_BARE_LINES = ("@", "TOKEN=@", '{"value": "@"}', "use @ for the staging shop", "curl -H 'X-Key: @' https://api.shop.io")


def _lined(prefix: Callable[[int], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(prefix(n) + line for n, line in enumerate(text.split("\n"), 1))


def _prose(text: str) -> str:
    return f"I looked at the old deployment first. What it used is {text}\nand after that the import went through."


def _env(text: str) -> str:
    return f"SHELL=/bin/zsh\nLANG=en_US.UTF-8\n{text}\nPWD=/home/ada/shop\nEDITOR=vim"


def _json(text: str) -> str:
    return json.dumps({"command": f"cat <<EOF\n{text}\nEOF", "description": "Write it"}, separators=(",", ":"))


def _json_in_json(text: str) -> str:
    return json.dumps({"arguments": _json(text), "n": 1}, separators=(",", ":"))


def _history(text: str) -> str:
    return _lined(lambda n: f"  {500 + n}  ")(text) + "\n  900  ls -la"


def _diff(text: str) -> str:
    return "@@ -1,4 +1,6 @@ settings\n context line\n" + _lined(lambda _n: "+")(text) + "\n-gone = 1"


def _trace(text: str) -> str:
    return (
        'Traceback (most recent call last):\n  File "/srv/shop/app.py", line 41, in connect\n'
        f"    {text}\nValueError: refused by the server\n"
    )


def _listing(text: str) -> str:
    return _lined(lambda n: f"{n:6}\u2192")(text)


def _log(text: str) -> str:
    return f"2026-03-01T08:15:00Z worker-3 INFO started\n2026-03-01T08:15:01Z worker-3 DEBUG {text}\n"


#: A name for each way in which a line may stand in a transcript, and the function that puts it there.
CONTEXTS: dict[str, Callable[[str], str]] = {
    "alone": str,
    "prose": _prose,
    "environment": _env,
    "JSON": _json,
    "JSON in JSON": _json_in_json,
    "shell history": _history,
    "diff": _diff,
    "stack trace": _trace,
    "numbered listing": _listing,
    "log": _log,
}

#: Where pieces of a block end; a value in the corpus lies across it in the context "border".
BORDER = 1200


@dataclass(frozen=True)
class Case:
    """A text with one credential in it."""

    kind: str
    context: str
    text: str
    value: str

    def leaks(self, redacted: str) -> bool:
        """Whether eight characters in a row of the value (or what it has) are left."""
        for line in self.value.replace("\\n", "\n").split("\n"):
            size = min(8, len(line))
            if size >= 6 and any(line[i : i + size] in redacted for i in range(len(line) - size + 1)):
                return True
        return False


def cases(seed: int = 0, rounds: int = 1) -> Iterator[Case]:
    """Every kind in every line it stands in, in every context, and across the border of two pieces."""
    rng = random.Random(seed)
    filler = "The worker reads a batch, writes it, and goes on with the next one. "
    for _ in range(rounds):
        for kind in KINDS:
            for line in kind.lines or _BARE_LINES:
                for name, context in CONTEXTS.items():
                    value = kind.make(rng)
                    yield Case(kind.name, name, context(_at(line, value)), value)
                value = kind.make(rng)
                text = _at(line, value)
                before = (filler * 40)[: BORDER - text.index(value) - len(value) // 2 - 1] + "\n"
                yield Case(kind.name, "border", before + text + "\n" + filler * 5, value)


def _at(line: str, value: str) -> str:
    return line.replace("@", value, 1)


# --- what only looks like it ------------------------------------------------------------------------------

_PUBLIC_LINES = (
    "commit {sha1}",
    "HEAD is now at {sha1} Fix the parser",
    "git checkout {sha1}",
    "index {sha7}..{sha7b} 100644",
    "Merge: {sha7} {sha7b}",
    "uses: actions/checkout@{sha1}",
    "pin the action to {sha1} for now",
    "parent {sha1}",
    "git rev-parse HEAD\n{sha1}",
    '"gitHead": "{sha1}"',
    "sha256:{sha256}",
    "FROM python@sha256:{sha256}",
    "{sha256}  dist/shop-1.0.tar.gz",
    'sha256 = "{sha256}"',
    '"integrity": "sha512-{b64_88}"',
    "integrity sha512-{b64_88}",
    'integrity="sha384-{b64_64}"',
    "shop@^1.2.0:\n  version 1.2.3\n  resolved https://registry.yarnpkg.com/shop/-/shop-1.2.3.tgz#{sha1}",
    '{{ url = "https://files.pythonhosted.org/packages/ab/cd/shop.whl", hash = "sha256:{sha256}" }}',
    "github.com/shop/lib v1.2.3 h1:{b64_44}",
    'checksum = "{sha256}"',
    'ETag: W/"{hex32}"',
    "md5: {hex32}",
    "Content-MD5: {b64_24}",
    "cache key node-modules-{sha256}",
    "cache_key = '{hex32}'",
    "restored from cache key: linux-node-{sha256}",
    'cacheKey: "{sha256}"',
    "docker image {sha256}",
    "/nix/store/{nix32}-bash-5.2",
    "dist/assets/index-{b62_8}.js",
    "dist/assets/vendor.{hex20}.js",
    "blob:https://shop.io/{uuid}",
    "session_id: {uuid}",
    '"sessionId":"{uuid}"',
    "sessionId={uuid}",
    '"uuid":"{uuid}","parentUuid":"{uuid2}"',
    "request id {uuid}",
    "x-request-id: {uuid}",
    "trace_id={hex32} span_id={hex16}",
    "traceparent: 00-{hex32}-{hex16}-01",
    '"tool_use_id":"toolu_01{b62_22}"',
    '"id":"msg_01{b62_22}","model":"opus"',
    "call_{b62_24}",
    "resp_{hex48}",
    "request_id: req_011{b62_20}",
    "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/db-{b62_6}",
    'secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop-{b62_6}"',
    "secretName: shop-tls-{b62_5}",
    "key_id: {uuid}",
    "KeyId: {uuid}",
    "kid: {b64u_27}",
    "next_page_token: {b64u_40}",
    "pageToken={b64u_40}",
    '"nextToken": "{b64u_40}"',
    "continuation_token={b64u_40}",
    "idempotency_key: {uuid}",
    "Idempotency-Key: {uuid}",
    "fingerprint SHA256:{b64_43}",
    "ssh-rsa {pubrsa} ada@shop",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64_43} ada@shop",
    "github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64_43}",
    "{cert}",
    "{pubkey}",
    'public_key: "{b64_44}"',
    "publicKey = '{b64_44}'",
    "STRIPE_PUBLISHABLE_KEY=pk_live_{b62_24}",
    'VAPID_PUBLIC_KEY="{b64u_87}"',
    'const png = "iVBORw0KGgo{b64_200}";',
    "expected = base64.b64decode('{b64_120}')",
    'fixture: "{b64_88}"',
    "data = b'{hex64}'",
    "0x{hex64}",
    "address 0x{hex40}",
    "tx 0x{hex64} mined in block 1823",
    "[{hex8}] deadbeefdeadbeefdeadbeefdeadbeef",
    "color: #{hex6}; background: #{hex6b}",
    "--brand: #{hex8};",
    "pod shop-{hex10}-{b36_5} restarted",
    "i-0{hex16} is running",
    "vpc-0{hex16} subnet-0{hex16b}",
    "ami-0{hex16}",
    "s3://bucket/{uuid}/part-00000-{uuid2}.parquet",
    "https://cdn.shop.io/{hex32}/logo.png?v={hex8}",
    "https://shop.io/reset?utm_id={hex16}",
    "/tmp/tmp{b36_8}/out.json",
    "/var/folders/x9/{b36_30}/T/pytest-1",
    ".git/objects/ab/{hex38}",
    'File "/app/{hex32}/main.py", line 3',
    "data:image/png;base64,[1234 characters left out]",
    "isbn 978-3-16-148410-0, tel +49 30 1234567",
    "version 1.2.3-beta.4+build.{sha7}",
    "elapsed 12345.678ms tokens=18293 cost=0.1234",
    "max_tokens: 200000, input_tokens: 18231, output_tokens: 9123",
    '"cache_read_input_tokens":182931,"total_tokens":1829310',
    "num_tokens = 123456789",
)

_CODE_LINES = (
    "password = get_password()",
    "password = os.environ['DB_PASSWORD']",
    'password = os.getenv("DB_PASSWORD", "")',
    "password: str",
    "password: Optional[str] = None",
    "token: str | None = None",
    "token = tokens[i + 1]",
    "token = self._next_token()",
    "const token = await getAccessTokenSilently();",
    'token := r.Header.Get("Authorization")',
    "if password == confirm_password:",
    "if (token.type === TokenType.StringLiteral) {",
    "api_key=settings.OPENAI_API_KEY",
    "apiKey: process.env.ANTHROPIC_API_KEY,",
    "apiKey: process.env.API_KEY ?? '',",
    "api_key = config.get('api_key')",
    "env:\n  GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}",
    "github-token: ${{ secrets.GITHUB_TOKEN }}",
    "password: ${DB_PASSWORD}",
    "PASSWORD=${PASSWORD:-}",
    'PASSWORD="$1"',
    "PGPASSWORD=$DB_PASSWORD psql -h db",
    "export TOKEN=$(gh auth token)",
    "export TOKEN=`cat token.txt`",
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer ${token}",
    'headers = {"Authorization": f"Bearer {token}"}',
    "'Authorization': 'Bearer ' + accessToken",
    "headers: { Authorization: `Bearer ${accessToken}` }",
    'curl -H "Authorization: Bearer $API_TOKEN" https://api.shop.io',
    'curl -u "$USER:$PASSWORD" https://api.shop.io',
    "req.SetBasicAuth(username, password)",
    "login(username=username, password=password)",
    "create_user(password=hash_password(raw_password))",
    "def set_password(self, new_password: str) -> None:",
    "private_key = load_pem_private_key(data, password=None)",
    'if line.startswith("-----BEGIN PRIVATE " "KEY-----"):',
    "grep -r 'BEGIN RSA PRIVATE ' .",
    "secret = Secret.from_name(client, 'database')",
    "secretKeyRef:\n  name: database\n  key: password",
    "passwordField = wait.until(ExpectedConditions.visibilityOf(element))",
    '<input type="password" name="password" placeholder="Password">',
    '<label for="password">New password (at least 12 characters)</label>',
    "PASSWORD_HASHERS = ['django.contrib.auth.hashers.Argon2PasswordHasher']",
    "AUTH_PASSWORD_VALIDATORS = [{'NAME': 'django.contrib.auth.password_validation.MinimumLengthValidator'}]",
    "password_reset_token_generator = PasswordResetTokenGenerator()",
    "oauth2_scheme = OAuth2PasswordBearer(tokenUrl='token')",
    "KEY_LENGTH_BYTES=32 SECRET_LENGTH=64",
    "tokenizer = AutoTokenizer.from_pretrained('bert-base-uncased')",
    "pad_token_id=tokenizer.eos_token_id",
    "bos_token='<|begin_of_text|>'",
    "key = lambda item: item.created_at",
    "sorted(rows, key=operator.itemgetter('created_at'))",
    "localStorage.setItem('token', response.data.token)",
    "request.headers['x-api-key'] = this.apiKey",
    '@Value("${spring.datasource.password}") private String password;',
    'password = "{{ vault_db_password }}"',
    "password: !vault |",
    "password: <your-password>",
    "password: [hidden]",
    "Password: ********",
    "token: ***",
    "Enter password for user postgres:",
    "passwd: password updated successfully",
    'ERROR: password authentication failed for user "app"',
    "error: invalid api key provided",
    "the password is stored in the vault under shop/database",
    "the token is refreshed every 15 minutes by a background task",
    "a secret named production-database-credentials exists",
    "keyboard shortcut: ctrl+shift+alt+F12",
    "12 sessions, 3 passages, {self.rate():,.0f}/s",
    "keep the multi-pass path on the legacy `non-AllRefs2` only",
    "passed 1234 tests, bypassed 3, compass heading 270",
    "--- PASS: TestParseToken/handles_sha256_input_v2 (0.01s)",
    "author: Ada Lovelace <ada@shop.io>",
    "auth: OAuth2AuthorizationCodeBearer",
    "git clone https://github.com/shop/lib.git",
    "git@github.com:shop/lib.git",
    "https://user@shop.io/path",
    "postgres://localhost:5432/shop",
    "postgres://$DB_USER:$DB_PASS@db/shop",
    "http://localhost:3000/@vite/client",
    "npm install @scope/name@1.2.3 https://x.io:8080/@scope/name",
    "ssh -p 2222 deploy@10.0.0.5 -i ~/.ssh/id_ed25519",
    "cookie: theme=dark; lang=en; consent=accepted-analytics-no-marketing",
    "Cookie: _ga=GA1.2.1234567890.1700000000",
    "[session] resumed after 3 interruptions",
)

_PLACEHOLDER_LINES = (
    "API_KEY=your-key-here",
    "API_KEY=your_api_key_here",
    "OPENAI_API_KEY=sk-" + "x" * 24,
    "OPENAI_API_KEY=sk-" + "your-openai-key",
    "ANTHROPIC_API_KEY=sk-" + "ant-your-key-here",
    "ANTHROPIC_API_KEY=sk-" + "ant-...",
    "export GITHUB_TOKEN=gh" + "p_" + "x" * 36,
    "GITHUB_TOKEN=<token>",
    "HF_TOKEN=hf_" + "x" * 34,
    "aws_access_key_id = AKIA" + "IOSFODNN7EXAMPLE",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "SLACK_TOKEN=xoxb-" + "your-token",
    "STRIPE_KEY=sk_" + "test_" + "1234567890abcdefghijklmn",
    "password: changeme",
    "password: change-me-please",
    "password = 'password'",
    "password = 'Password123'",
    "password='test'",
    "password='test1234'",
    "password='secret123'",
    "password: 'hunter2'",
    "password: admin123",
    "password: letmein",
    "POSTGRES_PASSWORD=postgres",
    "MYSQL_ROOT_PASSWORD=root",
    "DB_PASSWORD=example",
    "SECRET_KEY=development",
    "SECRET_KEY='django-insecure-change-me'",
    "JWT_SECRET=your-256-bit-secret",
    "JWT_SECRET=supersecretkey",
    "token = 'abc123'",
    "token = 'test-token-123'",
    "token='fake-token'",
    "api_key='dummy-api-key-for-tests'",
    "api_key = 'test-key'",
    "Authorization: Bearer test-token",
    "Authorization: Bearer <access_token>",
    "Authorization: Bearer YOUR_ACCESS_TOKEN",
    "Authorization: Basic dXNlcjpwYXNzd29yZA==",
    "postgres://postgres:postgres@localhost:5432/shop",
    "postgres://user:password@localhost/shop",
    "mongodb://root:example@mongo:27017",
    "redis://:password@localhost:6379",
    "https://user:pass@shop.io",
    "amqp://guest:guest@rabbit:5672",
    "https://<user>:<token>@git.shop.io/x.git",
    "curl -u user:password https://api.shop.io",
    "mysql -u root -p shop",
    "mysql -uroot -ppassword",
    "docker login -u user -p password",
    "--token <token>",
    "--password PASSWORD",
    "client_secret: CLIENT_SECRET",
    "client_secret: 'client-secret'",
    "DISCORD_TOKEN=paste-your-bot-token-here",
    "TELEGRAM_TOKEN=123456789:your-token",
    "-----BEGIN PRIVATE " + "KEY-----\n...\n-----END PRIVATE " + "KEY-----",
    "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIE...\n-----END RSA PRIVATE " + "KEY-----",
    "password=[REDACTED:password]",
    "token: [REDACTED]",
    "machine shop.io login user password <password>",
)


def _fill(rng: random.Random, line: str) -> str:
    base = {f"b64_{n}": draw(rng, _BASE64, n) for n in (24, 43, 44, 64, 88, 120, 200)}
    for name in ("b64_44", "b64_24"):
        base[name] = base[name][:-1] + "="
    base |= {f"hex{n}": draw(rng, _HEX, n) for n in (6, 8, 10, 16, 20, 32, 38, 40, 48, 64)}
    base |= {f"b62_{n}": draw(rng, _ALNUM, n) for n in (5, 6, 8, 20, 22, 24)}
    base |= {f"b64u_{n}": draw(rng, _URLSAFE, n) for n in (27, 40, 87)}
    base |= {f"b36_{n}": draw(rng, _LOWER, n) for n in (5, 8, 30)}
    begin, end = _dashed("CERTIFICATE")
    base["cert"] = f"{begin}\n{_key_lines(rng, 12)}\n{end}"
    begin, end = _dashed("PUBLIC KEY")
    base["pubkey"] = f"{begin}\n{_key_lines(rng, 6)}\n{end}"
    return line.format(
        **base,
        sha1=draw(rng, _HEX, 40),
        sha7=draw(rng, _HEX, 7),
        sha7b=draw(rng, _HEX, 7),
        sha256=draw(rng, _HEX, 64),
        hex6b=draw(rng, _HEX, 6),
        hex16b=draw(rng, _HEX, 16),
        nix32=draw(rng, "0123456789abcdfghijklmnpqrsvwxyz", 32),
        uuid=uuid.UUID(int=rng.getrandbits(128), version=4),
        uuid2=uuid.UUID(int=rng.getrandbits(128), version=4),
        pubrsa="AAAAB3NzaC1yc2EAAAADAQABAAABgQ" + draw(rng, _BASE64, 340),
    )


def lookalikes(seed: int = 0) -> Iterator[tuple[str, str]]:
    """Texts without any credential, each with the context it stands in."""
    rng = random.Random(seed)
    for line in _PUBLIC_LINES:
        for name in ("alone", "JSON", "diff", "numbered listing"):
            yield name, CONTEXTS[name](_fill(rng, line))
    for line in (*_CODE_LINES, *_PLACEHOLDER_LINES):
        for name in ("alone", "JSON", "JSON in JSON", "diff", "numbered listing", "log"):
            yield name, CONTEXTS[name](line)
