"""API documentation page: complete, plain text only, and without external resources."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heron_control.web.docs_page import docs_page

EVIL = "<script src=//evil.example></script><img src=x onerror=alert(1)>\"'"
TAGS = {
    "!doctype", "html", "head", "meta", "title", "body", "main", "h1", "h2", "p", "a", "section", "details", "summary",
    "span", "table", "tbody", "tr", "td",
}  # fmt: skip


def schema(text: str) -> dict[str, Any]:
    parameters = [
        {"name": "later", "in": "query", "description": text, "schema": {"type": "string", "default": text}},
        {"name": "wanted", "in": "path", "required": True, "schema": {"anyOf": [{"type": "integer"}, {"type": text}]}},
    ]
    form = {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/Form"}}}
    responses = {"409": {"description": text}}
    return {
        "info": {"title": text, "version": "1.2", "description": text},
        "paths": {
            f"/{text}": {
                "get": {"tags": ["things"], "summary": text, "parameters": parameters, "responses": responses},
                "post": {"deprecated": True, "requestBody": {"content": form}, "responses": responses},
            },
        },
        "components": {"schemas": {"Form": {"properties": {"field": {"type": "string", "description": text}}}}},
    }


def test_page_lists_paths_parameters_and_responses() -> None:
    page = unescape(docs_page(schema("text"), head="<!--head-->", top="<!--top-->"))
    for part in ("text 1.2", "GET /text", "POST /text", "(older path)", ">field<", "409 text", "integer or text"):
        assert part in page
    assert page.index(">wanted<") < page.index(">later<")
    assert 'string, default "text"' in page
    assert page.index("<!--head-->") < page.index("</head>") < page.index("<!--top-->")


@given(st.just(EVIL) | st.text())
def test_text_is_never_markup(text: str) -> None:
    tags = re.findall(r"<[^>]*>", docs_page(schema(text)))
    assert {tag.strip("</>").split()[0] for tag in tags} <= TAGS
    assert not [tag for tag in tags if "src=" in tag or " on" in tag]
