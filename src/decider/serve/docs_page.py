"""The body of `/docs`: an OpenAPI 3 document as HTML, made once, on the server.

It refuses to know routes and questions; all it shows stands in the document. Trap: the document may hold text of an
operator (the served model's name), so every word of it goes through `_text`.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")
MOST_DEPTH = 4
"""Levels of objects within objects that one table shows; what is deeper has a schema of its own, or none."""
BOUNDS = {
    "minimum": ("at least", ""), "exclusiveMinimum": ("above", ""), "maximum": ("at most", ""),
    "exclusiveMaximum": ("below", ""), "minItems": ("at least", " items"), "maxItems": ("at most", " items"),
    "minProperties": ("at least", " entries"), "maxProperties": ("at most", " entries"),
    "minLength": ("at least", " characters"), "maxLength": ("at most", " characters"),
}  # fmt: skip
"""Limits of JSON Schema in words, as they stand before and behind a number."""
SCHEMAS = "#/components/schemas/"
REFERENCES = re.compile(r"#/components/(\w+)/(.+)")


def docs_body(openapi: Mapping[str, Any]) -> str:
    """Contents, routes and schemas of `openapi`. Raises KeyError where it has no `info` or `paths`."""
    info = openapi["info"]
    operations = [
        (method, path, item[method]) for path, item in openapi["paths"].items() for method in METHODS if method in item
    ]
    schemas = openapi.get("components", {}).get("schemas", {})
    return "\n".join(
        (
            _contents(operations, schemas),
            "<div>",
            f'<section class="intro"><h2>{_text(info["title"])}</h2>{_paragraphs(info.get("description", ""))}'
            '<p class="note">For programs, the same as <a href="openapi.json">OpenAPI</a>.</p></section>',
            '<section><h2 id="routes">Routes</h2>',
            *(_operation(method, path, each, openapi) for method, path, each in operations),
            "</section>",
            _schemas(schemas),
            "</div>",
        )
    )


def _contents(operations: Iterable[tuple[str, str, Mapping[str, Any]]], schemas: Iterable[str]) -> str:
    routes = "".join(
        f'<li><a href="#{_anchor(method, path)}"><span class="method">{method.upper()}</span> {_text(path)}</a></li>'
        for method, path, _ in operations
    )
    named = "".join(f'<li><a href="#{_anchor("schema", name)}">{_text(name)}</a></li>' for name in schemas)
    types = f"<h2>Schemas</h2><ul>{named}</ul>" if named else ""
    return f'<nav class="contents" aria-label="Contents"><h2>Routes</h2><ul>{routes}</ul>{types}</nav>'


def _operation(method: str, path: str, operation: Mapping[str, Any], openapi: Mapping[str, Any]) -> str:
    parts = [
        f'<article class="operation" id="{_anchor(method, path)}">',
        f'<h3><span class="method">{method.upper()}</span>{_text(path)}</h3>',
        f'<p class="summary">{_text(operation["summary"])}</p>' if operation.get("summary") else "",
        _paragraphs(operation.get("description", "")),
        _parameters([_followed(each, openapi) for each in operation.get("parameters", ())]),
    ]
    if "requestBody" in operation:
        parts.append(_content("Request", _followed(operation["requestBody"], openapi)))
    responses = {status: _followed(given, openapi) for status, given in operation.get("responses", {}).items()}
    rows = []
    for status, response in responses.items():
        kinds = response.get("content", {}).values()
        types = " or ".join(dict.fromkeys(_type(kind["schema"]) for kind in kinds if "schema" in kind))
        rows.append((_text(status), types, _inline(response.get("description", ""))))
    parts.append(_table("Answers", ("status", "body", ""), rows))
    for status, response in responses.items():
        parts += [_examples(kind, f"Example of {status}") for kind in response.get("content", {}).values()]
    return "\n".join(filter(None, [*parts, "</article>"]))


def _parameters(parameters: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"<code>{_text(each['name'])}</code>{_needed(each.get('required', False))}",
            f"{_text(each['in'])}, {_type(each.get('schema', {}))}",
            _inline(each.get("description", "")),
        )
        for each in parameters
    ]
    return _table("Parameters", ("name", "in, type", ""), rows)


def _content(title: str, body: Mapping[str, Any]) -> str:
    parts = [_paragraphs(body.get("description", ""))]
    for media, kind in body.get("content", {}).items():
        schema = kind.get("schema", {})
        parts.append(f"<h4>{title}: {_text(media)}, {_type(schema)}</h4>")
        parts.append(_fields(schema))
        parts.append(_examples(kind, "Example"))
    return "\n".join(filter(None, parts))


def _examples(kind: Mapping[str, Any], title: str) -> str:
    found = {title: kind["example"]} if "example" in kind else {}
    found |= {
        f"{title}: {each.get('summary', name)}": each["value"]
        for name, each in kind.get("examples", {}).items()
        if "value" in each
    }
    return "\n".join(_example(name, value) for name, value in found.items())


def _example(title: str, value: object) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return f'<details><summary>{_text(title)}</summary><pre tabindex="0">{_text(shown)}</pre></details>'


def _schemas(schemas: Mapping[str, Any]) -> str:
    if not schemas:
        return ""
    parts = ['<section><h2 id="schemas">Schemas</h2>']
    for name, schema in schemas.items():
        parts += [
            f'<article class="schema" id="{_anchor("schema", name)}"><h3>{_text(name)}</h3>',
            _paragraphs(schema.get("description", "")),
            _fields(schema) or f'<p class="note">{_type(schema)}</p>',
            *(_example("Example", each) for each in schema.get("examples", ())),
            "</article>",
        ]
    return "\n".join(filter(None, [*parts, "</section>"]))


def _fields(schema: Mapping[str, Any]) -> str:
    return _table("", ("field", "type", ""), [*_rows(schema, "", 0)])


def _rows(schema: Mapping[str, Any], prefix: str, depth: int) -> Iterable[tuple[str, str, str]]:
    """A row a field, those of objects inside behind their own, `.` between names and `[]` for an array's items."""
    if depth == MOST_DEPTH:
        return
    for part in schema.get("allOf", ()):
        yield from _rows(part, prefix, depth)
    for name, field in schema.get("properties", {}).items():
        full = f"{prefix}{name}"
        needed = _needed(name in schema.get("required", ()))
        about = _inline(field.get("description", "")) + _bounds(field)
        yield f"<code>{_text(full)}</code>{needed}", _type(field), about
        yield from _rows(field, f"{full}.", depth + 1)
        if isinstance(field.get("items"), Mapping):
            yield from _rows(field["items"], f"{full}[].", depth + 1)


def _type(schema: Any) -> str:
    """A schema in a few words, references as links."""
    if not isinstance(schema, Mapping):
        return "anything"
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        inside = str(schema["$ref"]).startswith(SCHEMAS)
        return f'<a href="#{_anchor("schema", name)}">{_text(name)}</a>' if inside else _text(name)
    for key in ("oneOf", "anyOf", "allOf"):
        if key in schema:
            between = " and " if key == "allOf" else " or "
            return between.join(dict.fromkeys(_type(each) for each in schema[key]))
    if "const" in schema:
        return f"<code>{_text(json.dumps(schema['const'], ensure_ascii=False))}</code>"
    if "enum" in schema:
        return " or ".join(f"<code>{_text(json.dumps(each, ensure_ascii=False))}</code>" for each in schema["enum"])
    kinds = schema.get("type", "anything")
    return " or ".join(_kind(str(kind), schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _kind(kind: str, schema: Mapping[str, Any]) -> str:
    if kind == "array" and "items" in schema:
        return f"array of {_type(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object: name → {_type(schema['additionalProperties'])}"
    return _text(kind)


def _bounds(schema: Mapping[str, Any]) -> str:
    said = [f"{words} {schema[key]}{unit}" for key, (words, unit) in BOUNDS.items() if key in schema]
    if "default" in schema:
        said.append(f"default {json.dumps(schema['default'], ensure_ascii=False)}")
    return f' <span class="note">({_text("; ".join(said))})</span>' if said else ""


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """`rows` are HTML of ours."""
    if not rows:
        return ""
    heading = f"<h4>{title}</h4>" if title else ""
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    lines = "".join(
        f'<tr><th scope="row">{name}</th><td class="type">{kind}</td><td class="about">{about}</td></tr>'
        for name, kind, about in rows
    )
    return (
        f'{heading}<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
        "</div>"
    )


def _followed(part: Mapping[str, Any], openapi: Mapping[str, Any]) -> Mapping[str, Any]:
    """`part`, or what it refers to among the document's components."""
    found = REFERENCES.fullmatch(str(part.get("$ref", "")))
    if found is None:
        return part
    followed: Mapping[str, Any] = openapi["components"][found[1]][found[2]]
    return followed


def _needed(needed: bool) -> str:
    return '<span class="needed">required</span>' if needed else ""


def _anchor(kind: str, name: str) -> str:
    return f"{kind}-{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-')}"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_inline(part)}</p>" for part in re.split(r"\n\s*\n", text.strip()) if part)


def _inline(text: str) -> str:
    """Text in which only `code` between backticks is marked."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", _text(text))


def _text(words: object) -> str:
    return html.escape(str(words))
