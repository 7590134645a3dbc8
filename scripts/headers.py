"""The public headers as what they declare, each with its comment.

A header's first comment opens it. A comment `// --- words ---` is a heading. Declarations that
follow each other without a blank line are a group, which a comment above the first one is of; a
comment above a later one begins another group, one behind a declaration is its own. What is in
`namespace detail` or `namespace internal` is left out.
"""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include/postern"
HEADING = re.compile(r"--- (\S.*\S) ---$")
SKIP = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:[^"\\\n]|\\.)*"'
    r"|(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+'",
    re.S,
)
CLASS = re.compile(r"\b(struct|class|union|enum class|enum)\s+(?:POSTERN_API\s+)?(\w+)")
BLANK = re.compile(r"\s+")
ACCESS = re.compile(r"(public|private|protected):")
NAMESPACE = re.compile(r'(?:inline )?namespace ([\w:]+) \{|extern "C" \{')
DIRECTIVE = re.compile(r"(?:[^\n\\]|\\\n|\\.)*")
FUNCTION = re.compile(r"(operator\s*(?:\(\)|\[\]|\"\"\w+|[^\s(]+)|~?[\w:]*\w)\s*\(")


def public_headers():
    return sorted(h for h in HEADERS.glob("*.h") if h.name != "postern.h")


@dataclasses.dataclass
class Item:
    """A declaration, heading or free comment. `comment` has no slashes."""

    kind: str  # "prose", "heading", "class", "function", "declared" (not defined), "other"
    line: int
    comment: list
    head: str = ""  # the declaration up to its body or semicolon
    code: str = ""  # of an enum: its braces
    macro: str = ""  # what is shown of a macro
    name: str = ""
    apart: bool = False  # a blank line is before it
    raw: list = dataclasses.field(default_factory=list)  # its comment as it is written
    tail: str = ""  # the comment behind it on its line
    suffix: str = ""  # of a class: what is behind its brace, with the semicolon
    members: list = None
    public: bool = True
    exported: bool = False
    defaulted: bool = False


def skip(text, at):
    """Behind the comment or string that begins here, or the next character."""
    found = SKIP.match(text, at)
    return found.end() if found else at + 1


def closing(text, at):
    """Behind the bracket that closes the one here."""
    depth = 0
    while at < len(text):
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(text[at], 0)
        at = skip(text, at)
        if depth == 0:
            break
    return at


def angles(text, at):
    """Behind the > that closes the < here."""
    depth = 0
    while at < len(text):
        if text[at] == "(":
            at = closing(text, at)
            continue
        depth += {"<": 1, ">": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            break
    return at


def without_comments(code):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", code, flags=re.S)


def template_of(head):
    """Its `template <...>` and `requires ...`, and what follows them."""
    at = 0
    while found := re.match(r"\s*template\s*(?=<)", head[at:]):
        at = angles(head, at + found.end())
        clause = re.match(r"\s*requires\s*(\(|[^\s<(]+\s*)", head[at:])
        if clause and clause.group(1) == "(":
            at = closing(head, at + clause.end() - 1)
        elif clause:
            at += clause.end()
            if head[at - 1 : at] != " " and head[at : at + 1] == "<":
                at = angles(head, at)
    return head[:at].strip(), head[at:].strip()


def assigns(head):
    """Whether it says `= ...` outside of brackets."""
    flat = re.sub(r"operator\s*[^\s(\w]+", "operator", head)
    while re.search(r"\([^()]*\)", flat):
        flat = re.sub(r"\([^()]*\)", "", flat)
    return re.search(r"(?<![=!<>])=(?!=)", flat) is not None


@dataclasses.dataclass
class Scope:
    """What is being read: its items, and the comment that may be of the next one."""

    public: bool
    items: list = dataclasses.field(default_factory=list)
    comment: list = dataclasses.field(default_factory=list)
    raw: list = dataclasses.field(default_factory=list)
    line: int = 0  # of the comment
    apart: bool = False
    tail_column: int = -1  # where a comment behind a declaration goes on, below it

    def flush(self):
        if self.comment:
            self.items.append(
                Item("prose", self.line, self.comment, apart=True, raw=self.raw, public=self.public)
            )
        self.comment, self.raw = [], []

    def add(self, item):
        item.comment, item.raw = self.comment, self.raw
        item.apart, item.public = self.apart, self.public
        self.items.append(item)
        self.comment, self.raw, self.apart, self.tail_column = [], [], False, -1


class Parser:
    """The items of a header, in order."""

    def __init__(self, text):
        self.text, self.at = text, 0
        self.opening = []
        self.defined, self.declared = set(), set()
        self.drop_comment()
        self.items = self.scope([], False)

    def drop_comment(self):
        while self.text.startswith(("//", "/*"), self.at):
            end = skip(self.text, self.at)
            self.opening += plain(self.text[self.at : end])
            self.at = end + 1

    def line(self, at):
        return self.text.count("\n", 0, at) + 1

    def scope(self, path, in_class, public=True):
        """Items up to the brace that ends the scope, which is passed over."""
        text, scope = self.text, Scope(public=public)
        while self.at < len(text):
            here = text[self.at]
            if here.isspace():
                self.blank(scope)
            elif text.startswith(("//", "/*"), self.at):
                self.comment(scope)
            elif here == "#":
                self.directive(scope)
            elif here == "}":
                self.at += 1
                break
            elif here == ";":
                self.at += 1
            elif in_class and (label := ACCESS.match(text, self.at)):
                scope.flush()
                scope.public, scope.apart = label.group(1) == "public", True
                self.at = label.end()
            elif space := NAMESPACE.match(text, self.at):
                scope.flush()
                self.namespace(space, path, scope)
            else:
                scope.add(self.declaration(path, in_class))
        scope.flush()
        return scope.items

    def blank(self, scope):
        begin = self.at
        self.at = BLANK.match(self.text, begin).end()
        if self.text.count("\n", begin, self.at) > 1:
            scope.flush()
            scope.apart, scope.tail_column = True, -1

    def comment(self, scope):
        """Of what is before it on its line (and goes on below), a heading, or of what follows."""
        begin, start = self.at, self.text.rfind("\n", 0, self.at) + 1
        self.at = skip(self.text, begin)
        comment, column = self.text[begin : self.at], begin - start
        if comment.startswith("// namespace"):
            return
        goes_on = column == scope.tail_column and not scope.comment
        if scope.items and (goes_on or self.text[start:begin].strip()):
            gap = re.search(r"\s*$", self.text[:begin]).group()
            scope.items[-1].tail += gap + comment
            scope.tail_column = column
            return
        heading = HEADING.match(plain(comment)[0])
        becomes_manual = comment.startswith("///") and scope.raw and scope.raw[-1][:3] != "///"
        if heading or becomes_manual:
            scope.flush()
        if heading:
            scope.items.append(Item("heading", self.line(begin), [heading.group(1)]))
            return
        scope.line = scope.line if scope.comment else self.line(begin)
        scope.comment += plain(comment)
        scope.raw.append(comment)

    def namespace(self, space, path, scope):
        names = (space.group(1) or "").split("::")
        self.at = space.end()
        scope.apart = True
        if "detail" in names or "internal" in names:
            self.at = closing(self.text, self.at - 1)
            return
        unnamed = space.group().startswith(("inline", "extern"))
        inner = [] if unnamed else [name for name in names if name != "postern"]
        scope.items += self.scope(path + inner, False)

    def directive(self, scope):
        """Passes over a directive, and over what C++ alone or the second branch of an #if has. A
        macro that has a comment is an item."""
        found = DIRECTIVE.match(self.text, self.at)
        self.at = found.end()
        line = found.group()
        if line.startswith(("#else", "#elif", "#ifdef __cplusplus")):
            depth = 1
            while depth:
                end = self.text.index("\n", self.at) + 1
                inside = self.text[self.at : end]
                self.at = end
                depth += inside.startswith("#if") - inside.startswith("#endif")
        macro = re.match(r"#define ((\w+)\([^)]*\))", line)
        if macro and scope.comment:
            scope.add(Item("other", scope.line, [], macro=macro.group(1), name=macro.group(2)))
        scope.comment, scope.raw = [], []

    def declaration(self, path, in_class):
        """The declaration that begins here; behind it when this returns."""
        text, begin = self.text, self.at
        at, initialisers, item = begin, None, Item("other", self.line(begin), [])
        while True:
            c = text[at]
            if c in "([":
                at = closing(text, at)
                continue
            if c == ";":
                item.head, at = text[begin:at], at + 1
                break
            head = text[begin:at]
            if (
                c == ":"
                and initialisers is None
                and text[at - 1] != ":"
                and text[at + 1] != ":"
                and FUNCTION.search(template_of(without_comments(head))[1])
            ):
                initialisers = at
            if c == "{":
                bare = template_of(without_comments(head))[1]
                kind = CLASS.search(bare)
                if kind and "(" not in bare[kind.end() :] and "=" not in bare:
                    item.head, item.kind = head, "class"
                    if kind.group(1).startswith("enum"):
                        begun, at = at, closing(text, at)
                        item.code = text[begun:at]
                    else:
                        self.at = at + 1
                        item.members = self.scope(
                            path + [kind.group(2)], True, kind.group(1) != "class"
                        )
                        at = self.at
                    end = text.index(";", at)
                    item.suffix, at = text[at : end + 1], end + 1
                    break
                member = initialisers is not None and re.search(r"[\w>]$", text[begin:at])
                if FUNCTION.search(bare) and not assigns(bare) and not member:
                    item.head = text[begin : initialisers or at]
                    at = closing(text, at)
                    break
                at = closing(text, at)
                continue
            at = skip(text, at)
        self.at = at
        self.describe(item, path, in_class)
        return item

    def describe(self, item, path, in_class):
        item.exported = "POSTERN_API" in item.head
        bare = template_of(without_comments(item.head))[1]
        space = "::".join(path[:-1] if in_class else path)
        if item.kind == "class":
            name = CLASS.search(bare).group(2)
            self.defined.add("::".join([*path, name]))
        elif found := re.match(r"(?:struct|class|enum class) (\w+)$", bare):
            name = found.group(1)
            self.declared.add("::".join([*path, name]))
            item.kind = "declared"
        elif (
            (found := FUNCTION.search(bare))
            and not assigns(bare.replace("= default", "").replace("= delete", ""))
            and not re.match(r"using|typedef|[\w ]+\(\*", bare)
        ):
            item.kind, name = "function", found.group(1)
            item.defaulted = re.search(r"= (default|delete)$", bare) is not None
        elif bare.startswith("typedef") or "(*" in bare:
            name = re.search(r"\(\*(\w+)\)|(\w+)$", bare)
            name = name.group(1) or name.group(2)
        else:
            name = re.sub(r"[={].*", "", bare, flags=re.S).split(",")[0].split()[-1]
        item.name = name if in_class or not space else f"{space}::{name}"


def plain(comment):
    """The lines of a comment without its marks."""
    if comment.startswith("//"):
        return [re.sub(r"^//+ ?", "", comment).rstrip()]
    inside = comment[2:-2].strip("\n")
    return [
        re.sub(r"^ ?\* ?| $", "", line).rstrip() if i else line.strip()
        for i, line in enumerate(inside.split("\n"))
        if line.strip() or i
    ]


class Library:
    """All headers, and which names users can't name."""

    def __init__(self, headers=None):
        self.headers = {h: Parser(h.read_text()) for h in headers or public_headers()}
        parsed = self.headers.values()
        opaque = set().union(*(p.declared for p in parsed))
        opaque -= set().union(*(p.defined for p in parsed))
        names = "|".join(sorted(map(re.escape, opaque))) or "(?!)"
        for parser in parsed:
            self.drop_definitions(parser.items)
        self.hidden_names = re.compile(rf"\b(?:detail|internal)::|(?<![\w:])(?:{names})\b")

    @staticmethod
    def drop_definitions(items):
        """Leaves out functions that are declared above and defined here."""
        seen = set()
        for item in list(items):
            same = re.sub(r"\s|\[\[\w+\]\]|POSTERN_API|= *Place::current\(\)", "", item.head)
            if item.kind == "function" and same in seen:
                items.remove(item)
            seen.add(same)

    def hidden(self, item, in_class):
        """Whether users have no use for it."""
        head = without_comments(item.head)
        bare = template_of(head)[1]
        if item.kind == "declared":
            return not item.comment
        if not item.public or re.match(r"friend (struct|class)\b", bare):
            return True
        if item.kind == "function":
            own = item.name.split("::")[-1]
            if "::" in bare.split("(")[0].split()[-1] and not in_class:
                return True  # a member's definition
            if item.defaulted and not item.comment and not item.tail:
                return True
            return own == "internal" or in_class and self.hidden_names.search(bare) is not None
        return (
            in_class
            and item.kind == "other"
            and "detail::" in bare
            and not item.comment
            and not item.tail
        )
