"""Filters as text: `year >= 2020 and lang in (en, de)`.

    filter    = all { "or" all }
    all       = one { "and" one }
    one       = "not" one | "(" filter ")" | condition
    condition = field ( "=" | "!=" | ">" | ">=" | "<" | "<=" | "^=" ) value
              | field [ "not" ] "in" "(" value { "," value } ")"
              | field [ "not" ] "exists"

A field is a word or in quotes. A value is a number, true, false, null, or a string, in quotes if
it is more than a word.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, NoReturn

from glie.errors import InputError
from glie.filters.json_form import MOST_LEVELS, condition, from_json, too_deep
from glie.filters.tree import Filter, Not, Or, all_of

TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'[^']*')
    |(?P<sign>[!<>^]=|[=<>(),])
    |(?P<word>[^\s"'!<>^=(),]+))""",
    re.VERBOSE | re.DOTALL,
)
COMPARED = {"^=": "prefix"} | {sign: sign for sign in ("=", "!=", ">", ">=", "<", "<=")}
LITERAL = re.compile(r"true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


class Token(NamedTuple):
    """A part of the text. `kind` is a group of TOKEN, or `end`."""

    kind: str
    text: str
    at: int


def parse(text: str) -> Filter:
    """Read a filter from text. Text that begins with a brace is the JSON form."""
    if not isinstance(text, str):
        raise InputError(f"where: expected text, found {text!r:.80}")
    if not text.lstrip().startswith("{"):
        return _Parser(text).whole()
    try:
        return from_json(json.loads(text))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"where: {text!r:.80} is not JSON: {error}") from None
    except RecursionError:
        raise too_deep() from None


class _Parser:
    """Reads one text, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = self._token(0)
        self._level = 0

    def whole(self) -> Filter:
        found = self._any()
        if self._next.kind != "end":
            self._refuse("and, or, or the end")
        return found

    def _any(self) -> Filter:
        parts = [self._all()]
        while self._takes("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self) -> Filter:
        parts = [self._one()]
        while self._takes("and"):
            parts.append(self._one())
        return all_of(parts)

    def _one(self) -> Filter:
        self._level += 1
        if self._level > MOST_LEVELS:
            raise too_deep()
        if self._takes("not"):
            found: Filter = Not(self._one())
        elif self._takes("("):
            found = self._any()
            self._expect(")")
        else:
            found = self._condition()
        self._level -= 1
        return found

    def _condition(self) -> Filter:
        if self._next.kind not in ("word", "quoted") or self._is("and", "or", "in", "exists"):
            self._refuse("the name of a field")
        key = str(self._string(self._take()))
        if self._next.text in COMPARED:
            return condition(key, COMPARED[self._take().text], self._value())
        negated = self._takes("not")
        if self._takes("exists"):
            return condition(key, "exists", not negated)
        if not self._takes("in"):
            self._refuse("in or exists" if negated else "=, !=, >, >=, <, <=, ^=, in or exists")
        self._expect("(")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        self._expect(")")
        return condition(key, "not in" if negated else "in", values)

    def _value(self) -> Any:
        if self._next.kind not in ("word", "quoted"):
            self._refuse("a value")
        token = self._take()
        if token.kind == "word" and LITERAL.fullmatch(token.text):
            return self._json(token)
        return self._string(token)

    def _string(self, token: Token) -> Any:
        """The text of a word or of quotes. Double quotes are those of JSON; between single quotes
        every character stands for itself."""
        if token.kind == "word":
            return token.text
        return self._json(token) if token.text[0] == '"' else token.text[1:-1]

    def _json(self, token: Token) -> Any:
        try:
            return json.loads(token.text, strict=False)
        except ValueError as error:
            raise self._error(token, f"{token.text:.40} cannot be read: {error}") from None

    def _token(self, at: int) -> Token:
        found = TOKEN.match(self._text, at)
        if found is not None:
            kind = str(found.lastgroup)
            return Token(kind, found[kind], found.start(kind))
        rest = self._text[at:].lstrip()
        token = Token("end", rest, len(self._text) - len(rest))
        if rest[:1] in ("'", '"') and rest:
            raise self._error(token, "the quotes are not closed")
        if rest:
            raise self._error(token, f"{rest[0]!r} means nothing here; put it in quotes")
        return token

    def _take(self) -> Token:
        taken = self._next
        self._next = self._token(taken.at + len(taken.text))
        return taken

    def _is(self, *words: str) -> bool:
        """Whether one of these words or signs comes next; in quotes it would be a string."""
        return self._next.kind != "quoted" and self._next.text.lower() in words

    def _takes(self, word: str) -> bool:
        """Take this word or sign, if it comes next."""
        found = self._is(word)
        if found:
            self._take()
        return found

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            self._refuse(repr(sign))

    def _refuse(self, expected: str) -> NoReturn:
        found = f"found {self._next.text!r:.40}" if self._next.text else "found the end"
        raise self._error(self._next, f"expected {expected}, {found}")

    def _error(self, token: Token, what: str) -> InputError:
        """An error that shows the place: the text around it, and the number of the character."""
        start = max(0, token.at - 30)
        shown = f"{self._text[start : token.at]}⟨here⟩{self._text[token.at : token.at + 30]}"
        return InputError(f"where: character {token.at + 1}: {what}, in {shown!r}")
