"""When MkDocs builds the site: a page of header_pages.py for each public header, and an index of
all names that these pages have."""

import collections
import re

import header_pages
import headers
from markdown.extensions.toc import slugify, unique
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
    names = {"All names": "reference/names.md"}
    config.nav.insert(len(config.nav) - 1, {"Reference": [names, *pages]})
    return config


def anchors(content):
    """The anchors of a page's declarations, in their order."""
    used = set()
    text = re.sub(r"^```.*?^```$", "", content, flags=re.S | re.M)
    for level, heading in re.findall(r"^(#+) (.*)$", text, flags=re.M):
        anchor = unique(slugify(re.sub(r"[`\\]", "", heading), "-"), used)
        if level == "###":
            yield anchor


def names_of(library, header, content):
    """The names that a header's page declares, each with its anchor."""
    groups = header_pages.groups(library, library.headers[header].items)
    declared = [group for group in groups if group[0].kind not in ("heading", "prose")]
    for group, anchor in zip(declared, anchors(content), strict=True):
        for name in dict.fromkeys(item.name for item in group):
            yield name, anchor


def names_page(library, contents):
    """The index: a paragraph for each first letter."""
    by_letter = collections.defaultdict(list)
    for header, content in contents.items():
        for name, anchor in names_of(library, header, content):
            letter = name[0].upper() if name[0].isalpha() else "_"
            link = f"[`{name}`]({header.stem}.md#{anchor}) ({header.stem})"
            by_letter[letter].append((name.lower(), link))
    out = ["# All names", "Each leads to the page of its header."]
    for letter, entries in sorted(by_letter.items()):
        out += [f"## {letter}", " · ".join(link for _, link in sorted(entries))]
    return "\n\n".join(out) + "\n"


def on_files(files, config):
    library = headers.Library()
    contents = {header: header_pages.page(library, header) for header in library.headers}
    pages = {header.stem: content for header, content in contents.items()}
    for stem, content in {**pages, "names": names_page(library, contents)}.items():
        files.append(File.generated(config, f"reference/{stem}.md", content=content))
    return files
