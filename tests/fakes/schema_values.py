"""Values of a JSON Schema for tests: valid ones, those at each bound, and a few beyond it."""

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

Schema = Mapping[str, Any]

INTEGERS: Final = (0, 1, -1, 2, 500, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**30)
NUMBERS: Final = (0.0, 1.0, -1.0, 0.5, 1e-300, 5e-324, 1e300, 1e15, 0.001)
TIMES: Final = (
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999Z",
    "1970-01-01T00:00:00Z",
    "2026-11-20T09:00:00+14:00",
    "2038-01-19T03:14:08Z",
    "2199-12-31T23:59:59.999999Z",
    "2199-12-31T23:59:59-23:59",
    "2200-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
)
TEXTS: Final = (
    "",
    "a",
    "x" * 64,
    "x" * 251,
    "x" * 4_000,
    "\0",
    "a\0b",
    "\ud800",
    "\u202e\u0085",
    "😀" * 60,
    "%00",
    "*/5 * * * *",
    "0 0 29 2 *",
    "1s",
    "P1D",
    "999999999d",
    "Europe/Berlin",
    "http://127.0.0.1:9/\0",
    "http://127.0.0.1:9/%zz",
    "2199-12-31T23:59:59.999Z/00000000-0000-0000-0000-000000000000",
    "0001-01-01T00:00:00Z/ffffffff-ffff-ffff-ffff-ffffffffffff",
    "00000000-0000-0000-0000-000000000000@00010101T000000000Z",
    "00000000-0000-0000-0000-000000000000@21991231T235959999Z",
)
MAX_ITEMS: Final = 3
MAX_DEPTH: Final = 6


def values_of(schema: Schema, root: Schema | None = None, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return the values of a schema. About one value in ten breaks it."""
    root = schema if root is None else root
    valid = _valid(schema, root, depth)
    if depth == 0:
        return valid
    return st.integers(0, 19).flatmap(lambda n: _wrong(depth) if n == 0 else valid)


def resolve(schema: Schema, root: Schema) -> Schema:
    """Return the schema to which a reference leads, and any other schema itself."""
    if "$ref" not in schema:
        return schema
    found: Any = root
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return resolve(found, root)


def _wrong(depth: int) -> st.SearchStrategy[Any]:
    deep: Any = "deep"
    for _ in range(40):
        deep = [deep]
    scalars = (None, True, *INTEGERS, *NUMBERS, *TEXTS, *TIMES)
    return st.sampled_from([*scalars, [], {}, deep] if depth < MAX_DEPTH else scalars)


def _valid(schema: Schema, root: Schema, depth: int) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        found = resolve(schema, root)
        return st.deferred(lambda: values_of(found, root, depth + 1))
    if choices := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        return st.one_of([_valid(each, root, depth) for each in choices])
    if values := [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]:
        return st.sampled_from(values)
    match schema.get("type"):
        case "object":
            strategy = _objects(schema, root, depth)
        case "array":
            items = values_of(schema.get("items", {}), root, depth + 1)
            least = schema.get("minItems", 0)
            strategy = st.lists(items, min_size=least, max_size=max(least, MAX_ITEMS))
        case "string":
            strategy = _strings(schema)
        case "integer":
            strategy = _numbers(schema, INTEGERS, st.integers)
        case "number":
            strategy = _numbers(schema, NUMBERS, st.floats)
        case "boolean" | "null" as kind:
            strategy = st.booleans() if kind == "boolean" else st.none()
        case _:
            strategy = _wrong(depth)
    return strategy


def _objects(schema: Schema, root: Schema, depth: int) -> st.SearchStrategy[Any]:
    required = schema.get("required", [])
    fields = {
        name: values_of(each, root, depth + 1)
        for name, each in schema.get("properties", {}).items()
        if depth < MAX_DEPTH or name in required
    }
    optional = {name: each for name, each in fields.items() if name not in required}
    named = st.fixed_dictionaries(
        {name: fields[name] for name in required if name in fields}, optional=optional
    )
    more = schema.get("additionalProperties")
    if not isinstance(more, Mapping) or depth >= MAX_DEPTH:
        return named
    names = st.sampled_from(["a", "x" * 200, "\0", ""])
    others = st.dictionaries(names, values_of(more, root, depth + 1), max_size=2)
    return st.tuples(others, named).map(lambda pair: pair[0] | pair[1])


def _strings(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.get("format") == "date-time":
        return st.sampled_from(TIMES)
    if schema.get("format") == "uuid":
        return st.uuids().map(str)
    known = st.sampled_from(TEXTS)
    if "pattern" in schema:
        return st.one_of(st.from_regex(schema["pattern"]), known)
    return known


def _numbers(schema: Schema, extremes: tuple[Any, ...], kind: Any) -> st.SearchStrategy[Any]:
    least, most = schema.get("minimum"), schema.get("maximum")
    bounds = [each for each in (least, most, schema.get("exclusiveMinimum")) if each is not None]
    more = {} if kind is st.integers else {"allow_nan": False, "allow_infinity": False}
    between = kind(min_value=least, max_value=most, **more)
    return st.one_of(between, st.sampled_from([*bounds, *extremes]))
