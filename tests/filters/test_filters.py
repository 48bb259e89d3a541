"""Filters on metadata: the JSON form, the text form, and what they match."""

from __future__ import annotations

import functools
import json
import operator
import pickle
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glie
from glie.filters import And, AnyOf, Compare, Exists, Filter, Not, Or, Prefix, from_json, parse
from glie.filters.json_form import MOST_LEVELS

COMPARED: dict[str, Any] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
# few of each, so that they meet
KEYS = st.sampled_from(["year", "lang", "a.b", "not", "é \"'"])
DATES = ["2023-01-31", "2023-02-01T00:30", "2023-02-01T00:30+02:00", "2023-02", "2023-01-31 23:00"]
SCALARS = st.one_of(
    st.sampled_from([None, True, False, 0, 1, 2020, 2020.0, 2020.5, -1e300, 10**20]),
    st.sampled_from(["", "en", "english", "EN", "null", "1", "or", "a b", "\\\n\"'é", *DATES]),
)
VALUES = st.one_of(SCALARS, st.just([1, "en"]), st.just({"a": 1}))
METADATA = st.dictionaries(KEYS, VALUES, max_size=4)


def same(one: Any, other: Any) -> bool:
    """Equality of JSON: true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def in_utc(text: str) -> datetime | None:
    if text not in DATES or text == "2023-02":
        return None
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=timezone(timedelta()))


def expected(where: dict[str, Any], metadata: dict[str, Any]) -> bool:
    """What a filter of one key, from `conditions`, says of a page: the plain reference."""
    ((key, value),) = where.items()
    if key in ("and", "or") and isinstance(value, list):
        parts = [expected(part, metadata) for part in value]
        return all(parts) if key == "and" else any(parts)
    if key == "not" and isinstance(value, dict):
        return not expected(value, metadata)
    ((sign, operand),) = value.items()
    found = metadata.get(key)
    match sign:
        case "=":
            return key in metadata and same(found, operand)
        case "!=":
            return key not in metadata or not same(found, operand)
        case "in":
            return key in metadata and any(same(found, one) for one in operand)
        case "not in":
            return key not in metadata or not any(same(found, one) for one in operand)
        case "exists":
            return (key in metadata) is operand
        case "prefix":
            return isinstance(found, str) and found[: len(operand)] == operand
    if isinstance(found, str) and isinstance(operand, str):
        one, other = in_utc(found), in_utc(operand)
        if one and other:
            return bool(COMPARED[sign](one, other))
        return bool(COMPARED[sign](found, operand))
    numbers = type(found) in (int, float) and type(operand) in (int, float)
    return numbers and bool(COMPARED[sign](found, operand))


def written(where: dict[str, Any]) -> str:
    """A filter from `conditions` as text."""
    ((key, value),) = where.items()
    if key in ("and", "or") and isinstance(value, list):
        return "(" + f" {key} ".join(map(written, value)) + ")"
    if key == "not" and isinstance(value, dict):
        return f"not {written(value)}"
    ((sign, operand),) = value.items()
    name = json.dumps(key)
    if sign == "exists":
        return f"{name} {'exists' if operand else 'not exists'}"
    if sign in ("in", "not in"):
        return f"{name} {sign} ({', '.join(map(json.dumps, operand))})"
    return f"{name}{'^=' if sign == 'prefix' else sign}{json.dumps(operand)}"


TEXTS = SCALARS.filter(lambda value: isinstance(value, str))
ORDERED = SCALARS.filter(lambda value: value is not None and not isinstance(value, bool))
OPERANDS = st.one_of(
    st.tuples(st.sampled_from(["=", "!="]), SCALARS),
    st.tuples(st.sampled_from(list(COMPARED)), ORDERED),
    st.tuples(st.sampled_from(["in", "not in"]), st.lists(SCALARS, min_size=1, max_size=3)),
    st.tuples(st.just("exists"), st.booleans()),
    st.tuples(st.just("prefix"), TEXTS),
)
# a field named "not" can only be asked for in text: in JSON, a dict would be a filter
FIELDS = KEYS.filter(lambda key: key != "not")
CONDITIONS = st.builds(lambda key, one: {key: dict([one])}, FIELDS, OPERANDS)


def joined(filters: Any) -> Any:
    lists = st.lists(filters, min_size=1, max_size=3)
    either = st.builds(lambda key, parts: {key: parts}, st.sampled_from(["and", "or"]), lists)
    return either | filters.map(lambda part: {"not": part})


FILTERS = st.recursive(CONDITIONS, joined, max_leaves=6)


@given(FILTERS, st.lists(METADATA, min_size=1, max_size=8))
@hypothesis.settings(max_examples=400)
def test_json_and_text_say_what_plain_python_says(
    where: dict[str, Any], pages: list[dict[str, Any]]
) -> None:
    by_json, by_text = from_json(where), parse(written(where))
    for metadata in pages:
        assert by_json.matches(metadata) is expected(where, metadata)
        assert by_text.matches(metadata) is expected(where, metadata)


@given(FILTERS)
def test_filters_are_values(where: dict[str, Any]) -> None:
    one, again = from_json(where), from_json(json.loads(json.dumps(where)))
    assert (one, hash(one)) == (again, hash(again))
    assert from_json(one) is one
    assert pickle.loads(pickle.dumps(one)) == one
    assert parse(json.dumps(where)) == one
    assert Not(one) != one


def test_the_fields_of_a_filter() -> None:
    where = {"a": 1, "or": [{"b": {">": 1}}, {"not": {"c": {"exists": True}}}], "and": [{}]}
    assert from_json(where).fields == {"a", "b", "c"}
    assert from_json({}).fields == from_json({"or": []}).fields == set()


@pytest.mark.parametrize(
    ("where", "tree"),
    [
        ({}, And(())),
        ({"a": 1}, AnyOf("a", frozenset(["1"]))),
        ({"a": 1.0}, AnyOf("a", frozenset(["1"]))),
        ({"a": (1, True, "1")}, AnyOf("a", frozenset(["1", "true", '"1"']))),
        ({"a": []}, AnyOf("a", frozenset())),
        # a dict without operators is a value, as before there were any
        ({"a": {"b": 1, "c": []}}, AnyOf("a", frozenset(['{"b": 1, "c": []}']))),
        ({"a": {}}, AnyOf("a", frozenset(["{}"]))),
        ({"a": {"=": {"in": [1]}}}, AnyOf("a", frozenset(['{"in": [1]}']))),
        ({"a": {"=": [1, 2]}}, AnyOf("a", frozenset(["[1, 2]"]))),
        ({"a": {">": 1, "<=": 2}}, And((Compare("a", ">", 1), Compare("a", "<=", 2)))),
        ({"a": {"exists": False}}, Not(Exists("a"))),
        ({"b": 1, "a": {"prefix": "x"}}, And((Prefix("a", "x"), AnyOf("b", frozenset(["1"]))))),
        ({"or": []}, Or(())),
        ({"and": [{}, {"a": {"exists": True}}, {"and": []}]}, Exists("a")),
        ({"or": [Exists("a")]}, Or((Exists("a"),))),
        # fields may have these names
        ({"and": 1, "not": "x"}, from_json({"and": [{"and": {"=": 1}}, {"not": "x"}]})),
        ({"or": ["x", "y"]}, AnyOf("or", frozenset(['"x"', '"y"']))),
        ({"not": ["x"]}, AnyOf("not", frozenset(['"x"']))),
    ],
    ids=lambda each: str(each) if isinstance(each, dict) else "",  # a set has no order
)
def test_the_tree_of_a_filter(where: dict[str, Any], tree: Filter) -> None:
    assert from_json(where) == tree


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("year=2020", {"year": 2020}),
        ("document = a.pdf", {"document": "a.pdf"}),
        ("name='C:\\temp \"x\"'", {"name": 'C:\\temp "x"'}),
        ('name="\\u00e9\\n"', {"name": "é\n"}),
        ("a=true AND b=null", {"and": [{"a": True}, {"b": None}]}),
        ('a="true"', {"a": "true"}),
        ("a=-1.5e3", {"a": -1500}),
        ("a=007", {"a": "007"}),
        ("a=NaN", {"a": "NaN"}),
        ("date>=2023-01-31T10:00+02:00", {"date": {">=": "2023-01-31T10:00+02:00"}}),
        ('document ^= "reports/"', {"document": {"prefix": "reports/"}}),
        ("state=or or state=in", {"or": [{"state": "or"}, {"state": "in"}]}),
        ("lang not in (en,'de')", {"lang": {"not in": ["en", "de"]}}),
        ("not a exists", {"a": {"exists": False}}),
        # `and` binds more closely than `or`, `not` more closely than both
        (
            "not a=1 and b=2 or c=3",
            {"or": [{"and": [{"not": {"a": 1}}, {"b": 2}]}, {"c": 3}]},
        ),
        ("a=1 and (b=2 or c=3)", {"and": [{"a": 1}, {"or": [{"b": 2}, {"c": 3}]}]}),
        (' {"a": {"<": 3}}', {"a": {"<": 3}}),
    ],
)
def test_the_text_form(text: str, where: dict[str, Any]) -> None:
    assert parse(text) == from_json(where)


def test_the_table_of_the_guide() -> None:
    """Both forms of a row mean the same."""
    guide = Path(__file__).parents[2] / "docs" / "guide.md"
    rows = re.findall(r"^\| `(\{.*?)` \| `(.*?)` \|", guide.read_text(), re.MULTILINE)
    assert len(rows) == 10
    for where, text in rows:
        one, other = from_json(json.loads(where)), parse(text)
        assert parts_of(one) == parts_of(other)


def parts_of(where: Filter) -> set[Filter]:
    """The parts of `and`, in any order."""
    return set(where.parts) if isinstance(where, And) else {where}


def test_a_field_of_any_name_in_text() -> None:
    assert parse('"not">1 and "exists" exists') == And((Compare("not", ">", 1), Exists("exists")))


@pytest.mark.parametrize(
    ("field", "sign", "value", "matches"),
    [
        ("2023-05-01", "<", "2023-05-01T00:00:01", True),  # a date is its midnight
        ("2023-05-01", "<=", "2023-05-01T00:00", True),
        ("2023-05-01T01:00+02:00", "<", "2023-05-01", True),  # in UTC it is still April
        ("2023-05-01T01:00Z", ">", "2023-05-01T01:00+00:30", True),
        ("2023-05-01 09:00", "<", "2023-05-01T10:00", True),
        ("2023-13-01", "<", "2023-12-31", False),  # no date: as text
        ("b", ">", "a", True),
        ("10", "<", "9", True),  # text, not numbers
        ("10", "<", 9, False),
        (10, ">", "9", False),
        (True, ">=", 0, False),
        (None, "<=", 0, False),
        ([5], ">", 1, False),
        (2**63, ">", float(2**63 - 2**11), True),
    ],
)
def test_what_compares(field: Any, sign: str, value: Any, matches: bool) -> None:
    assert from_json({"x": {sign: value}}).matches({"x": field}) is matches
    assert from_json({"x": {sign: value}}).matches({}) is False


def test_pages_without_the_field_are_not_equal_to_anything() -> None:
    for where in ({"x": {"!=": 1}}, {"x": {"not in": [1, None]}}, {"not": {"x": {">": 1}}}):
        assert from_json(where).matches({})
    assert not from_json({"x": None}).matches({})
    assert from_json({"x": {"exists": True}}).matches({"x": None})


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("a", "where: expected a dict of metadata values, found 'a'"),
        ([], "where: expected a dict"),
        ({1: 2}, "where: expected the name of a field, found 1"),
        ({"a": {">": 1, "=>": 2}}, "'a': '=>' is no operator; expected =, !=, >, >=, <, <=, in"),
        ({"a": {">": True}}, "where: 'a' >: expected a number or a string, which .* found True"),
        ({"a": {">": None}}, "'a' >: expected a number"),
        ({"a": {"<": float("nan")}}, "'a' <: expected a number"),
        ({"a": {"in": "en"}}, "'a' in: expected a list of values, found 'en'"),
        ({"a": {"not in": 3}}, "'a' not in: expected a list of values, found 3"),
        ({"a": {"exists": 1}}, "'a' exists: expected true or false, found 1"),
        ({"a": {"prefix": 1}}, "'a' prefix: expected a string, found 1"),
        ({"a": object()}, "is not a JSON value"),
        ({"and": {"a": 1}}, "'and': expected a list of filters, found {'a': 1}"),
        ({"or": [{"a": 1}, 2]}, "'or': expected a list of filters"),
        ({"not": {"or": [{"a": {"in": 1}}]}}, "'a' in: expected a list"),
    ],
)
def test_json_that_is_no_filter(where: Any, said: str) -> None:
    with pytest.raises(glie.InputError, match=said) as error:
        from_json(where)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "character 1: expected the name of a field, found the end"),
        ("year", "character 5: expected =, !=, >, >=, <, <=, ^=, in or exists, found the end"),
        ("year >=", "character 8: expected a value, found the end"),
        ("year == 1", "character 7: expected a value, found '=', in 'year =⟨here⟩= 1'"),
        ("a=1 b=2", "character 5: expected and, or, or the end, found 'b', in 'a=1 ⟨here⟩b=2'"),
        ("a=1 and", "character 8: expected the name of a field"),
        ("or a=1", "character 1: expected the name of a field, found 'or'"),
        ("a in en", "character 6: expected '(', found 'en'"),
        ("a in (en", "character 9: expected ')', found the end"),
        ("a in ()", "character 7: expected a value, found ')'"),
        ("a not = 1", "character 7: expected in or exists, found '='"),
        ("(a=1", "character 5: expected ')', found the end"),
        ('a="x', "character 3: the quotes are not closed"),
        ("a=x!", "character 4: '!' means nothing here; put it in quotes"),
        ('a="\\q"', 'character 3: "\\q" cannot be read: Invalid'),
        ("a>true", "'a' >: expected a number"),
        ("{", "where: '{' is not JSON: "),
        ('{"a": {"in": 1}}', "'a' in: expected a list"),
        (5, "where: expected text, found 5"),
    ],
)
def test_text_that_is_no_filter(text: Any, said: str) -> None:
    with pytest.raises(glie.InputError) as error:
        parse(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_nested_as_deeply_as_allowed_and_deeper() -> None:
    for levels, allowed in (MOST_LEVELS - 1, True), (MOST_LEVELS + 1, False), (50_000, False):
        where: dict[str, Any] = {"a": 1}
        for _ in range(levels):
            where = {"not": where}
        ways: list[Callable[[], Filter]] = [
            functools.partial(from_json, where),
            functools.partial(parse, "not " * levels + "a=1"),
            functools.partial(parse, "(" * levels + "a=1" + ")" * levels),
        ]
        for read in ways:
            if allowed:
                assert isinstance(read(), Filter)
            else:
                with pytest.raises(glie.InputError, match="more than 50 deep; write it flatter"):
                    read()
    with pytest.raises(glie.InputError, match=r"deep|not JSON"):
        parse('{"not":' * 50_000)
    value: list[Any] = []
    for _ in range(50_000):
        value = [value]
    with pytest.raises(glie.InputError, match="is not a JSON value"):
        from_json({"a": {"=": value}})
