"""Pages of Markdown of what the public headers declare, and what is wrong with these pages.

Shown is the code without function bodies and without what users can't name: private members, what
takes or gives something of `namespace detail`, and types that are only declared.
"""

import re

from headers import CLASS, FUNCTION, HEADERS, HEADING, SKIP, plain, template_of, without_comments

GROUPS = {
    "Values": "tensor type dtype tree view place attributes npy dlpack",
    "Operations": "ops arrange compare conv indexing linalg products random reduce signal sort nn"
    " initialize optimize",
    "Programs": "jit run program devices error file native record safetensors state checkpoint",
    "Host functions": "call pending host registry library pool c guest",
    "Seeing": "tap hook live print check trace listen metrics serve",
    "Structure": "control transforms block",
    "Devices": "sharding shard cluster",
}
RULER = re.compile(r"-{3,}")


def wrapped(code, margin):
    """A function's declaration within 100 columns, its parameters below each other."""
    code = re.sub(r"\s+", " ", code).replace("( ", "(")
    start = FUNCTION.search(code).end()
    depth, lines, begin, comma = 0, [], 0, None
    for at, c in enumerate(code):
        depth += {"(": 1, "<": 1, "{": 1, ")": -1, ">": -1, "}": -1}.get(c, 0) * (at >= start)
        indent = " " * (len(margin) + start if lines else len(margin))
        if at - begin + len(indent) > 98 and comma and at < len(code) - 1:
            lines.append(indent + code[begin : comma + 1])
            begin, comma = comma + 2, None
        if c == "," and depth == 0 and at >= start:
            comma = at
    lines.append(" " * (len(margin) + start if lines else len(margin)) + code[begin:])
    return "\n".join(lines)


def head_of(item, margin):
    """The declaration without what users can't name."""
    template, bare = template_of(item.head.strip())
    in_class = margin != ""
    if "detail::" in item.head:
        template = re.sub(r"\s*requires\b.*", "", template, flags=re.S)
        template = re.sub(r"detail::\w+ (?=\w+[,>])", "class ", template)
        if item.kind == "class":
            bare = re.sub(r"\s*:(?!:).*detail::.*", "", bare, flags=re.S)
        elif item.kind == "function" and not in_class:
            at = FUNCTION.search(bare).start(1)
            words, rest = bare[:at], bare[at:]
            if "detail::" in words:
                kept = re.match(r"(?:\[\[\w+\]\] |inline |constexpr )*", words).group()
                words = kept + "auto "
            bare = words + rest
        elif in_class:
            bare = bare.replace("detail::", "")
        else:
            value = " = ..." if bare.startswith("concept") else ""
            bare = re.sub(r"\s*=.*", value, bare, flags=re.S)
    bare = re.sub(r"POSTERN_API\s", "", bare)
    if item.kind == "function" and "//" not in bare:
        bare = wrapped(bare, margin).lstrip()
    return (re.sub(r"\n\s*", "\n" + margin, template) + "\n" + margin if template else "") + bare


def shown(library, item, depth=0):
    """The lines of an item's code, its comment not among them."""
    margin = "  " * depth
    code = head_of(item, margin)
    if item.members is not None:
        return [f"{margin}{code} {{", *body(library, item, depth + 1), margin + "}" + item.suffix]
    braces = " " + item.code if item.code else ""
    code = item.macro or code + braces + (item.suffix or ";")
    tail = re.sub(r"\s*(//|/\*)", r"  \1", item.tail, count=1) if item.exported else item.tail
    return (margin + code + tail).split("\n")


def body(library, owner, depth):
    """The lines of a class's public part."""
    lines, margin = [], "  " * depth
    visible = [
        i for i in owner.members if i.public and not (i.kind != "prose" and library.hidden(i, True))
    ]
    while visible and visible[-1].kind == "prose":
        visible.pop()
    for item in visible:
        if item.apart and lines:
            lines.append("")
        comment = [margin + line.strip() for raw in item.raw for line in raw.split("\n")]
        lines += comment
        if item.kind != "prose":
            lines += shown(library, item, depth)
    if re.search(r"\bclass\b", template_of(owner.head)[1]) and lines:
        lines.insert(0, "  " * (depth - 1) + " public:")
    return lines


def escaped(text):
    """Markdown that shows the comment's own < and *, but for what is in backquotes."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*\[])", r"\\\1", p.replace("<", "&lt;")) for p in parts[::2]]
    return "`".join(parts)


def prose_of(comment, language="c++"):
    """The paragraphs of a comment; lines that are indented are code."""
    out, kind = [], None
    for line in comment:
        new = "blank" if not line else "code" if line.startswith("  ") else "text"
        if new == "blank" and kind == "code":
            out[-1].append("")
            continue
        if new != kind and new != "blank":
            out.append([new])
        if new != "blank":
            out[-1].append(line)
        kind = new
    texts = []
    for kind, *lines in out:
        if kind == "code":
            code = "\n".join(line[2:] for line in lines).strip("\n")
            texts.append(f"```{language}\n{code}\n```")
        else:
            texts.append(escaped(" ".join(lines)))
    return texts


def groups(library, items):
    """The items of a page by group: a heading or prose alone, or declarations."""
    out = []
    for item in items:
        if item.kind in ("heading", "prose"):
            out.append([item])
            continue
        if library.hidden(item, False):
            if item.apart or item.comment:
                out.append([])
            continue
        alone = not out or item.apart or item.comment or not out[-1]
        if alone or out[-1][0].kind in ("heading", "prose"):
            out.append([item])
        else:
            out[-1].append(item)
    return [group for group in out if group]


def page(library, header):
    """The Markdown of a header's page."""
    parsed = library.headers[header]
    language = "c" if header.name in ("c.h", "guest.h") else "c++"
    out = [
        f"# {header.name}",
        f"`#include <postern/{header.name}>`",
        *prose_of(parsed.opening, language),
    ]
    for group in groups(library, parsed.items):
        first = group[0]
        if first.kind == "heading":
            out.append(f"## {escaped(first.comment[0])}")
            continue
        if first.kind == "prose":
            out += prose_of(first.comment, language)
            continue
        names = list(dict.fromkeys(item.name for item in group))
        more = " ..." if names[6:] else ""
        out.append("### " + ", ".join(f"`{name}`" for name in names[:6]) + more)
        out += prose_of(first.comment, language)
        code = "\n".join(line for item in group for line in shown(library, item))
        out.append(f"```{language}\n{code}\n```")
    return "\n\n".join(out) + "\n"


def lacking(library, items, in_class=False):
    """The public functions that have no comment, of their own or of their group."""
    group = False
    for item in items:
        if item.kind == "prose" or item.kind == "heading":
            group = False
            continue
        group = bool(item.comment) or group and not item.apart
        if library.hidden(item, in_class):
            continue
        if item.members is not None:
            yield from lacking(library, item.members, True)
        spoken = group or item.tail or item.defaulted or item.name.split("::")[-1].startswith("~")
        if item.kind == "function" and not spoken:
            yield item


def faults(library):
    """What is wrong with the headers or their pages, a line each."""
    grouped = " ".join(GROUPS.values()).split()
    for header, parsed in library.headers.items():
        if header.stem not in grouped:
            yield f"{header.name}: no group of scripts/header_pages.py names it"
        lines = header.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            ruler = re.match(r"\s*(//|/\*| \*)(.*)", line)
            if ruler and RULER.search(ruler.group(2)) and not HEADING.match(plain(line.strip())[0]):
                yield f"{header.name}:{number}: a heading is a line of its own, `// --- words ---`"
        for item in lacking(library, parsed.items):
            yield f"{header.name}:{item.line}: {item.name} has no comment, nor has its group"
        yield from page_faults(header.name, page(library, header))
    for name in grouped:
        if not (HEADERS / f"{name}.h").exists():
            yield f"{name}.h: scripts/header_pages.py names it, and there is none"


def page_faults(name, text):
    """What a page shows that is no use to its reader."""
    for block in re.findall(r"^```\S+\n(.*?)^```$", text, flags=re.S | re.M):
        code = SKIP.sub("", block)
        first = next((line for line in code.splitlines() if line.strip()), "")
        for pair in ("()", "[]", "{}"):
            if code.count(pair[0]) != code.count(pair[1]):
                yield f"{name}: the block that begins `{first}` has {pair} that do not match"
        for what in (
            "private:",
            "protected:",
            "detail::",
            "internal::",
            "internal()",
            "POSTERN_API",
        ):
            if what in code:
                yield f"{name}: the block that begins `{first}` shows {what}"
