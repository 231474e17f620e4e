"""HTML page of an OpenAPI description, without scripts or external resources; all texts are escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

METHODS = ("get", "head", "post", "put", "delete")


def docs_page(schema: Mapping[str, Any], head: str = "", top: str = "") -> str:
    """Return the page. ``head`` and ``top`` are HTML that the server adds to the head and above the content."""
    info = schema["info"]
    title = f"{info['title']} {info['version']}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{escape(title)}</title>{head}</head>'
        f"<body>{top}<main><h1>{escape(title)}</h1><p>{escape(info.get('description', ''))}</p>"
        f'<p>As a machine reads it: <a href="/openapi.json">/openapi.json</a></p>{"".join(_groups(schema))}'
        "</main></body></html>"
    )


def _groups(schema: Mapping[str, Any]) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method in METHODS:
            if method in methods:
                operation = methods[method]
                tag = operation.get("tags", ["other"])[0]
                by_tag.setdefault(tag, []).append(_operation(schema, f"{method.upper()} {path}", operation))
    for tag, operations in by_tag.items():
        yield f'<section class="card"><h2>{escape(tag)}</h2>{"".join(operations)}</section>'


def _operation(schema: Mapping[str, Any], what: str, operation: Mapping[str, Any]) -> str:
    older = "(older path) " if operation.get("deprecated") else ""
    parameters = sorted(operation.get("parameters", ()), key=lambda p: not p.get("required"))
    rows = [_row(p["name"], p["in"], p, p.get("schema", {})) for p in parameters]
    rows += [_row(name, "form", detail, detail) for name, detail in _form_fields(schema, operation)]
    table = f"<table><tbody>{''.join(rows)}</tbody></table>" if rows else ""
    answers = " · ".join(f"{code} {answer.get('description', '')}" for code, answer in operation["responses"].items())
    return (
        f'<details><summary><span class="mono">{escape(what)}</span> '
        f'<span class="soft">{escape(older + operation.get("summary", ""))}</span></summary>'
        f"<p>{escape(operation.get('description', ''))}</p>{table}"
        f'<p class="soft small">Answers: {escape(answers)}</p></details>'
    )


def _row(name: str, where: str, described: Mapping[str, Any], shape: Mapping[str, Any]) -> str:
    kind = shape.get("type") or " or ".join(one.get("type", "") for one in shape.get("anyOf", ()))
    default = f", default {json.dumps(shape['default'])}" if "default" in shape else ""
    required = "required" if described.get("required") is True else ""
    cells = (f"{kind}{default}", where, required, described.get("description", ""))
    return f'<tr><td class="mono">{escape(name)}</td>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'


def _form_fields(schema: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        shape = content.get("schema", {})
        for part in (shape, *shape.get("allOf", ()), *shape.get("anyOf", ())):
            if "$ref" in part:
                part = schema["components"]["schemas"].get(part["$ref"].rpartition("/")[2], {})
            yield from part.get("properties", {}).items()
