"""E-mail (.eml), by the standard library: its headers, its text, and messages inside it."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage
from typing import cast

from glie.documents.readers import web
from glie.documents.readers.blocks import PAGE_BREAK, Block, RefusedError, in_a_line, paginate

SHOWN = ("From", "To", "Cc", "Date")
USUAL = (*SHOWN, "Subject", "Received", "Message-ID", "MIME-Version", "Content-Type")
DEEPEST = 10  # messages in messages


def pages(path: str) -> list[str]:
    with open(path, "rb") as file:
        message = email.message_from_binary_file(file, policy=email.policy.default)
    if not any(name in message for name in USUAL):
        raise RefusedError("not an e-mail, whatever its name says: it has no headers")
    return paginate(_blocks(message))


def _blocks(message: EmailMessage, depth: int = 0) -> Iterator[Block]:
    subject = _header(message, "Subject")
    yield from [Block("heading", subject)] if subject else []
    headers = ((name, _header(message, name)) for name in SHOWN)
    yield Block("text", "\n".join(f"{name}: {value}" for name, value in headers if value))
    yield from _body(message)
    names, inside = list[str](), list[EmailMessage]()
    for part in message.iter_attachments() if message.is_multipart() else ():
        held = part.get_payload()
        if part.get_content_type() == "message/rfc822" and isinstance(held, list):
            inside += cast(list[EmailMessage], held)
        elif part.get_filename():
            names.append(in_a_line(str(part.get_filename())))
    if names:
        yield Block("text", f"Attachments: {', '.join(names)}")
    for other in inside if depth < DEEPEST else ():
        yield PAGE_BREAK
        yield from _blocks(other, depth + 1)


def _body(message: EmailMessage) -> Iterator[Block]:
    part = message.get_body(("plain", "html"))
    if part is None:
        return
    text = _content(cast(EmailMessage, part))
    if part.get_content_subtype() == "html":
        yield from web.blocks(text, title="")
        return
    for paragraph in text.replace("\r\n", "\n").split("\n\n"):
        yield Block("text", paragraph.strip())


def _content(part: EmailMessage) -> str:
    try:
        return str(part.get_content())
    except (LookupError, ValueError):  # an encoding that there is not
        data = part.get_payload(decode=True)
        return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""


def _header(message: EmailMessage, name: str) -> str:
    try:
        return in_a_line(str(message.get(name, "")))
    except Exception:  # the standard library's parser fails on some malformed ones
        raw = dict(message.raw_items()).get(name, "")
        return in_a_line(str(raw))
