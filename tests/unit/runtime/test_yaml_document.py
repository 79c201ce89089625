"""Documents of operators: their values, their lines, and what the reader refuses."""

import pytest

from harebell.contract.errors import InvalidInput
from harebell.runtime.yaml_document import MAX_VALUES, parse_yaml, parse_yaml_documents


def test_values_are_those_of_json() -> None:
    document = parse_yaml(b"a: 1\nb: [true, null, 1.5, text, 2026-01-01]\nc: {d: 'x'}\n")

    assert document.value == {
        "a": 1,
        "b": [True, None, 1.5, "text", "2026-01-01"],
        "c": {"d": "x"},
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("22:30", "22:30"),
        ("190:20:30", "190:20:30"),
        ("no", "no"),
        ("Off", "Off"),
        ("y", "y"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("=", "="),
        ("2026-01-01", "2026-01-01"),
        ("0123", 123),
        ("0o17", 15),
        ("0x1F", 31),
        ("1e3", 1000.0),
        ("1E-2", 0.01),
        (".5", 0.5),
        ("TRUE", True),
        ("~", None),
        ("", None),
        ("!!str 5", "5"),
        ("'null'", "null"),
    ],
)
def test_plain_value_has_its_type_of_yaml_1_2(text: str, value: object) -> None:
    found = parse_yaml(f"a: {text}\n".encode()).value

    assert isinstance(found, dict)
    assert (type(found["a"]), found["a"]) == (type(value), value)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{\t"a":\t1}', {"a": 1}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": 1E400}', None),
        (b'{"a": "\\ud83d\\ude00", "b": NaN}', None),
        (b'{"a": "\\ud83d\\ude00", "b": 1, "b": 2}', None),
    ],
)
def test_every_json_document_is_read(body: bytes, value: object) -> None:
    if value is None:
        with pytest.raises(InvalidInput):
            parse_yaml(body)
    else:
        assert parse_yaml(body).value == value


def test_line_is_shown_as_written_unless_it_has_several_values() -> None:
    document = parse_yaml(b"a:\n  b: 0x1F  # hex\nc: {d: 1, e: 2}\nf: " + b"x" * 200 + b"\n")

    assert document.written(2) == "b: 0x1F  # hex"
    assert document.written(3) is None
    assert len(document.written(4) or "") == 121


def test_json_and_an_empty_text_are_documents() -> None:
    assert parse_yaml(b'{"a": [1, "b"]}').value == {"a": [1, "b"]}
    assert parse_yaml(b"").value is None


def test_line_of_a_field_is_the_nearest_line_of_the_document() -> None:
    document = parse_yaml(b"tenants:\n  acme:\n    ports:\n      - 80\n      - 443\n")

    assert document.line_of("tenants.acme.ports[1]") == 5
    assert document.line_of("tenants.acme.ports[1].x") == 5
    assert document.line_of("tenants.acme.pools") == 2
    assert document.line_of("other") is not None


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        (b"a: &x 1\nb: *x\n", "yaml_alias", 2),
        (b"a: &x [*x]\n", "yaml_alias", 1),
        (b"a: 1\na: 2\n", "repeated_field", 2),
        (b"a: 1\n1: 2\n", "not_json", 2),
        (b"a: 1\nb: !!binary aGk=\n", "not_json", 2),
        (b"a: 1\nb: !!int 22:30\n", "not_json", 2),
        (b"a: 1\nb: !!bool no\n", "not_json", 2),
        (b"a: 1\nb: !!python/object/apply:os.system [x]\n", "not_json", 2),
        (b"a: [1\n", "not_yaml", 2),
        (b"a: 1\n---\nb: 2\n", "not_yaml", 2),
        (b"a: .inf\n", "not_json", 1),
        (b"a: 1\nb: [-.inf, .nan]\n", "not_json", 2),
        (b"[" * 100, "too_deep", 1),
        (b"a: \xff\n", "not_yaml", None),
    ],
)
def test_other_text_is_refused_with_its_line(body: bytes, code: str, line: int | None) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_yaml(body)

    assert refused.value.code == code
    assert line is None or f"line {line}" in refused.value.reason


def test_long_document_of_open_brackets_needs_no_stack() -> None:
    with pytest.raises(InvalidInput):
        parse_yaml(b"[" * 1_000_000)


def test_stream_has_the_documents_in_their_order() -> None:
    documents = parse_yaml_documents(b"a: 1\n---\n---\n- b\n")

    assert [each.value for each in documents] == [{"a": 1}, None, ["b"]]
    assert parse_yaml_documents(b"") == []


def test_body_with_too_many_values_is_refused_before_its_values_are_built() -> None:
    body = b"- 1\n" * MAX_VALUES + b"*unknown"

    with pytest.raises(InvalidInput) as refused:
        parse_yaml(body)
    with pytest.raises(InvalidInput) as also_refused:
        parse_yaml_documents(b"a: [1, 2]\n---\nb\n", max_values=5)

    assert refused.value.code == "too_large"
    assert f"line {MAX_VALUES}" in refused.value.reason
    assert also_refused.value.code == "too_large"
    assert len(parse_yaml_documents(b"a: [1, 2]\n---\nb\n", max_values=6)) == 2
