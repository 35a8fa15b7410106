"""Hooks of mkdocs: which files of the repository are on the site, and the last check of what it would load."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PATTERNS = (
    "*.md", "LICENSE", "Dockerfile", "docs/**/*.md", "docs/**/*.svg", "docs/**/*.png", "docs/**/*.ipynb",
    "docs/site/*.css", "examples/**/*", "manifests/**/*", "benchmarks/README.md", "kfjob/trainer/collectives.py",
)  # fmt: skip
"""Pages, and the files that they link to."""
_LOADED = re.compile(r'<(?:img|source|script|link)\b[^>]*?\b(?:src|srcset|href)="([^"]+)"')
_FOREIGN = re.compile(r"(?:https?:)?//")


def on_config(config: MkDocsConfig) -> None:
    """Replace each pattern of the navigation by the pages that match it and are listed nowhere else."""
    nav = config.nav or []
    listed = {page for page in re.findall(r"[\w./-]+\.md", repr(nav)) if "*" not in page}
    for section in nav:
        for title, entries in section.items():
            section[title] = [_expand(entry, listed) for entry in entries]


def _expand(entry: str | dict[str, str], listed: set[str]) -> str | dict[str, str] | dict[str, list[str]]:
    """Return an entry of the navigation with the pages of its pattern."""
    if isinstance(entry, str) or not any("*" in pattern for pattern in entry.values()):
        return entry
    return {title: sorted({str(path.relative_to(ROOT)) for path in ROOT.glob(name)} - listed) for title, name in entry.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Give each file the path that it has in the repository, so that a link holds in both."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    paths = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern) if path.is_file()})
    where = {"src_dir": str(ROOT), "dest_dir": config.site_dir, "use_directory_urls": False}
    own = [File(str(path.relative_to(ROOT)), **where, inclusion=InclusionLevel.INCLUDED) for path in paths]
    return Files([*theme, *own])


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Refuse a page that loads a file from another host, or a picture that does not exist; mkdocs checks links only."""
    for target in _LOADED.findall(output):
        if _FOREIGN.match(target):
            raise PluginError(f"{page.file.src_uri} loads {target} from another host")
        picture = (ROOT / page.file.src_uri).parent / target
        if target.endswith((".svg", ".png")) and "assets/" not in target and not picture.is_file():
            raise PluginError(f"{page.file.src_uri} shows {target}, which does not exist")
    return output
