"""The files of the site: pages from where they stand in the tree, and what they link to.

Owns: which files mkdocs sees (each page of `nav`, by its path in the tree, and each file that one
of them links to, as it is); lists as mkdocs wants them indented; that no page fetches anything.
Refuses: prose, and the look (`mkdocs.yml`).

mkdocs takes pages from one folder. Ours stand beside what they describe, and link to each other
and to code by relative paths, as a reader of the repository follows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[1]
_LINK: Final = re.compile(r"\]\(([^)#\s:]+)(?:#[^)\s]*)?\)")
_FETCHED: Final = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=\"?https?:")
_FENCED: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, the pages of `nav`, and what these link to."""
    kept = [file for file in files if file.src_dir != config.docs_dir]
    pages = list(_pages(config.nav))
    linked = sorted({path for page in pages for path in _linked(page)} - set(pages))
    made = [
        File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path))
        for path in (*pages, *linked)
    ]
    return Files([*kept, *made])


def _pages(nav: Any) -> Iterator[Path]:
    if isinstance(nav, str):
        yield ROOT / nav
        return
    for inner in nav.values() if isinstance(nav, dict) else nav:
        yield from _pages(inner)


def _linked(page: Path) -> Iterator[Path]:
    """Files of the tree that a page links to."""
    for target in _LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            yield path


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A list within a list by four spaces: mkdocs takes fewer for the same list."""
    parts = _FENCED.split(markdown)
    parts[::2] = [re.sub(r"^ {2,3}(?=- |\|)", "    ", part, flags=re.M) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """PluginError where a page would fetch something from elsewhere."""
    if found := _FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri}: fetches {found[0]!r}; the site has all it needs")
    return output
