"""One address that takes and answers JSON: time-outs, retries, a key, errors in one line."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from glie.errors import EncoderError, MissingExtraError

if TYPE_CHECKING:
    import urllib3

KEY = "GLIE_ENCODER_API_KEY"
CONNECT_SECONDS = 10.0
# Encoding changes nothing on the server, so a request may be sent again. These say that the server
# is busy or starting. Others, such as 400 or 500, would come back the same.
TRY_AGAIN = (408, 425, 429, 502, 503, 504)
RETRIES = 5  # after waiting 0, 1, 2, 4 and 8 seconds, up to half a second more, or as it asks
FACTOR = 0.5
JITTER = 0.5
LONGEST_WAIT = 30  # seconds, also where the server asks for more


class Client:
    """Posts JSON to one URL. Several threads may share it."""

    def __init__(self, url: str, timeout: float, *, connections: int) -> None:
        try:
            import urllib3
        except ImportError:
            raise MissingExtraError("an encoder behind an endpoint", "endpoint") from None
        self.url = url
        self._timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=timeout)
        self._retries = urllib3.Retry(
            RETRIES,
            read=1,  # a time-out, or a connection that broke: once more
            redirect=False,  # the key is for this address alone
            allowed_methods=["POST"],
            status_forcelist=TRY_AGAIN,
            raise_on_status=False,
            backoff_factor=FACTOR,
            backoff_max=LONGEST_WAIT,
            backoff_jitter=JITTER,
            retry_after_max=LONGEST_WAIT,
        )
        proxy = _proxy(url)
        self._pool: urllib3.PoolManager = (
            urllib3.ProxyManager(proxy, maxsize=connections)
            if proxy
            else urllib3.PoolManager(maxsize=connections)
        )

    def post(self, body: dict[str, Any]) -> Any:
        """The answer to a body, both as JSON objects."""
        import urllib3

        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {os.environ[KEY]}"
        try:
            answer = self._pool.request(
                "POST",
                self.url,
                body=json.dumps(body).encode(),
                headers=headers,
                timeout=self._timeout,
                retries=self._retries,
            )
        except (urllib3.exceptions.HTTPError, UnicodeError) as error:
            raise EncoderError(f"{self.url}: {_reason(error, self._timeout)}") from None
        if answer.status != 200:
            raise EncoderError(f"{self.url}: it answered {answer.status}: {_said(answer)}")
        try:
            return json.loads(answer.data)
        except ValueError:
            raise EncoderError(
                f"{self.url}: its answer is not JSON: {answer.data[:60]!r}; is this the right "
                "address?"
            ) from None


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for a URL (HTTPS_PROXY, NO_PROXY, ...)."""
    from urllib import request  # brings the e-mail package along

    parts = urlsplit(url)
    if request.proxy_bypass(parts.hostname or ""):
        return None
    return request.getproxies().get(parts.scheme)


def _reason(error: Exception, timeout: urllib3.Timeout) -> str:
    """Why there is no answer, and what to do."""
    from urllib3 import exceptions

    cause = getattr(error, "reason", None) or error
    if isinstance(cause, exceptions.ReadTimeoutError):
        return (
            f"no answer in {timeout.read_timeout:g} seconds; give it longer with the option "
            "timeout=, or less at a time with batch="
        )
    if isinstance(cause, exceptions.NewConnectionError | exceptions.NameResolutionError):
        return f"it cannot be reached ({_short(cause)}); is the server running there?"
    if isinstance(cause, exceptions.ConnectTimeoutError):
        return f"no connection in {CONNECT_SECONDS:g} seconds; is the server running there?"
    if isinstance(cause, exceptions.ProtocolError):
        return f"the connection broke ({_short(cause)}); see the server's log, and try again"
    return f"no answer: {_short(cause)}"


def _short(error: Any) -> str:
    """The last and most particular part of urllib3's messages."""
    return str(error).strip().splitlines()[0].split(": ")[-1].strip("()'\" ")


def _said(answer: Any) -> str:
    """What a server says of an error, and what to do about it."""
    text = answer.data.decode("utf-8", "replace").strip()
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = text
    for key in ("error", "detail", "message"):  # OpenAI's form, FastAPI's, and that of old vLLM
        if isinstance(found, dict) and found.get(key):
            found = found[key]
            if key == "error" and isinstance(found, dict):
                found = found.get("message") or found
    said = found if isinstance(found, str) else json.dumps(found)
    said = " ".join(said.split())[:300] or "nothing"
    if answer.status in (401, 403):
        return f"{said}; give its key in the environment variable {KEY}"
    if 300 <= answer.status < 400:
        place = answer.headers.get("Location", "elsewhere")
        return f"it points to {place}; give that address if you trust it"
    if answer.status in TRY_AGAIN:
        return f"{said}, also after {RETRIES} more tries; wait, then run this again"
    return said
