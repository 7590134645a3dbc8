"""When MkDocs builds the site: a page of header_pages.py for each public header."""

import header_pages
import headers
from mkdocs.structure.files import File


def on_config(config):
    stems = {header.stem for header in headers.public_headers()}
    groups = {group: names.split() for group, names in header_pages.GROUPS.items()}
    lost = stems.symmetric_difference(name for names in groups.values() for name in names)
    if lost:
        raise SystemExit(f"header_pages.py: its groups have or lack {sorted(lost)}")
    pages = [
        {group: [{f"{name}.h": f"reference/{name}.md"} for name in names]}
        for group, names in groups.items()
    ]
    config.nav.insert(len(config.nav) - 1, {"Reference": pages})
    return config


def on_files(files, config):
    library = headers.Library()
    for header in library.headers:
        content = header_pages.page(library, header)
        files.append(File.generated(config, f"reference/{header.stem}.md", content=content))
    return files
