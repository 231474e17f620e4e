"""An OpenAPI description as one page of HTML: no script, no style from elsewhere, every text escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

METHODS = ("get", "head", "post", "put", "delete")


def docs_page(schema: Mapping[str, Any]) -> str:
    """The page."""
    info = schema["info"]
    title = f"{info['title']} {info['version']}"
    body = "".join(_operations(schema))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head><body>'
        f"<h1>{escape(title)}</h1><p>{escape(info.get('description', ''))}</p>"
        f'<p>As a machine reads it: <a href="/openapi.json">/openapi.json</a></p>{body}</body></html>'
    )


def _operations(schema: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in schema["paths"].items():
        for method in METHODS:
            if method not in methods:
                continue
            operation = methods[method]
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            summary, text = operation.get("summary", ""), operation.get("description", "")
            yield f"<p><b>{escape(summary)}.</b> {escape(text)}</p><dl>"
            for parameter in operation.get("parameters", ()):
                needed = ", needed" if parameter.get("required") else ""
                yield f"<dt><code>{escape(parameter['name'])}</code> ({escape(parameter['in'])}{needed})</dt>"
                yield f"<dd>{escape(parameter.get('description', ''))}</dd>"
            for field, text in _fields(schema, operation):
                yield f"<dt><code>{escape(field)}</code> (form)</dt><dd>{escape(text)}</dd>"
            for code, response in operation.get("responses", {}).items():
                yield f"<dt>{escape(str(code))}</dt><dd>{escape(response.get('description', ''))}</dd>"
            yield "</dl>"


def _fields(schema: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        shape = content.get("schema", {})
        for found in (shape, *shape.get("allOf", ()), *shape.get("anyOf", ())):
            if "$ref" in found:
                found = schema["components"]["schemas"].get(found["$ref"].rpartition("/")[2], {})
            for name, detail in found.get("properties", {}).items():
                yield name, str(detail.get("description", ""))
