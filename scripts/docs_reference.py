"""The reference: a page for each public header, made of its comments when MkDocs builds the site.

A header's first comment becomes the page's opening, a comment `// --- words ---` a heading, and
each group of lines between blank ones a declaration: its `///` lines are prose, the rest is code
without function bodies and private parts. What is in `namespace detail` is left out.
"""

import pathlib
import re

from mkdocs.structure.files import File

HEADERS = pathlib.Path("include/postern")
GROUPS = {
    "Values": "tensor type dtype tree view place attributes",
    "Programs": "jit run program devices error file npy record",
    "Host functions": "call pending host registry library c",
    "Seeing": "tap hook print check listen",
    "Structure": "control transforms block",
    "Devices": "sharding shard",
}


def without_details(lines):
    """Leaves out what stands in `namespace detail` and the like."""
    at = 0
    while at < len(lines):
        if re.match(r"namespace (\w+::)*detail \{|extern \"C\"|#", lines[at]):
            end = at
            depth = lines[at].count("{") - lines[at].count("}")
            while lines[at].startswith("namespace") and depth > 0:
                end += 1
                depth += lines[end].count("{") - lines[end].count("}")
            while lines[end].endswith("\\"):
                end += 1
            at = end + 1
            continue
        yield lines[at]
        at += 1


def closing(text, at):
    """The index behind the brace that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)


def without_bodies(code):
    """Cuts function bodies, initialisers of constructors, and what is private."""
    code = re.sub(r"\n *private:.*?(?=\n\};)", "", code, flags=re.S)
    out, at, parens = "", 0, 0
    while at < len(code):
        if code.startswith("//", at):
            end = code.find("\n", at)
            end = len(code) if end < 0 else end
            out, at = out + code[at:end], end
            continue
        c = code[at]
        parens += {"(": 1, ")": -1}.get(c, 0)
        if c == "{" and parens == 0 and re.search(r"(\)|\}|const|noexcept|auto)\s*$", out):
            at = closing(code, at)
            out = re.sub(r"\)\s*: \w+(<\w+>)?[({][^;]*$", ")", out.rstrip()) + ";"
            continue
        out, at = out + c, at + 1
    return re.sub(r"\n\n+(?=\};)", "\n", out).replace(";;", ";")


def escaped(text):
    """Markdown that shows the comment's own < and *, but for what is in backquotes."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*\[])", r"\\\1", p.replace("<", "&lt;")) for p in parts[::2]]
    return "`".join(parts)


def prose_of(comment):
    """The paragraphs of lines that begin with // or ///."""
    text = "\n".join(line.lstrip("/").strip() for line in comment)
    return [escaped(p.replace("\n", " ")) for p in re.split(r"\n\n+", text) if p.strip()]


def names(code):
    """What a group of declarations declares."""
    found = []
    for line in code.splitlines():
        line = line.split("//")[0]
        kind = re.match(r"(?:struct|class|enum class|using|concept|typedef struct) (\w+)", line)
        function = re.match(r"[\w:<>,&*. \[\]]+?[ &*>](\w+|operator\S+?)\(", line)
        name = kind or (function if not line.startswith((" ", "requires", "template")) else None)
        if name and name.group(1) not in found:
            found.append(name.group(1))
        if kind:
            break
    return found


def page(header):
    lines = header.read_text().splitlines()
    opening = 0
    while lines[opening].startswith("//"):
        opening += 1
    out = [f"# {header.name}", f"`#include <postern/{header.name}>`", *prose_of(lines[:opening])]
    body = "\n".join(without_details(lines[opening:])).replace("POSTERN_API ", "")
    body = re.sub(r"^(inline )?namespace.*\{$|^\}  // namespace.*$", "", body, flags=re.M)
    body = re.sub(r"^(class|struct) [\w:]+;.*\n|.*= default;$|.*= delete;$", "", body, flags=re.M)
    for chunk in re.split(r"\n\s*\n(?![ }])|(?<=;)\n(?=///)|(?<=^\})\n(?=///)", body, flags=re.M):
        chunk = chunk.strip("\n")
        heading = re.match(r"// --- (.*?) -*$", chunk, flags=re.M)
        if heading:
            out.append(f"## {escaped(heading.group(1))}")
            chunk = chunk[heading.end() :].strip("\n")
        prose = []
        rest = chunk.split("\n")
        while rest and rest[0].startswith("//"):
            prose.append(rest.pop(0))
        code = "\n".join(rest).strip()
        if not code:
            continue
        title = names(code)
        if title:
            more = " ..." if title[6:] else ""
            out.append("### " + ", ".join(f"`{name}`" for name in title[:6]) + more)
        if prose:
            out += prose_of(prose)
        out.append("```c++\n" + without_bodies(code) + "\n```")
    return "\n\n".join(out) + "\n"


def headers():
    return sorted(h for h in HEADERS.glob("*.h") if h.name != "postern.h")


def on_config(config):
    group_of = {name: group for group, members in GROUPS.items() for name in members.split()}
    groups = {group: [] for group in GROUPS}
    for header in headers():
        group = group_of.get(header.stem, "Operations")
        groups.setdefault(group, []).append({header.name: f"reference/{header.stem}.md"})
    reference = {"Reference": [{group: pages} for group, pages in groups.items() if pages]}
    config.nav.insert(len(config.nav) - 1, reference)
    return config


def on_files(files, config):
    for header in headers():
        files.append(File.generated(config, f"reference/{header.stem}.md", content=page(header)))
    return files
