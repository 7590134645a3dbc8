"""What the comments of the public headers owe their readers beside being there: the errors that
each function throws, and an example of those whose use is not obvious.

A comment names an error where it says "throws" or an error's type, in C a code or "fails". It may
be the function's own or its group's. A class, a section and a header's opening say it for all that
is in them with a sentence like "Every function throws ..." or "No member throws but ...".

Lines of a comment that are indented are an example. Those of functions and classes are programs by
themselves: they are compiled and run, and a comment behind `const pn::Tensor y = ...;` that is a
number or begins with a bracket is what y must print as.
"""

import re

THROWS = re.compile(r"\b[Tt]hrow(?:s|n)?\b|\b\w*Error\b")
FAILS = re.compile(r"\bPN_[A-Z_]+\b|\b[Ff]ails?\b")
FOR_ALL = re.compile(
    r"\b(?:Every|No|All)(?: other)? (?:function|member)s?\b[^.]*\b(?:throw|fail)s?\b"
)
PRINTED = re.compile(r"const pn::Tensor (?:.*, )?(\w+) =.*;  // (\[.*\]|-?[\d.]+)$")
SKIPPED = ("c.h", "guest.h", "devices.h")  # C, and what comes before the first operation
# Headers of functions that do nothing but return.
PURE = (
    "arrange compare conv indexing initialize linalg nn ops products random reduce signal sort"
).split()
# Functions that throw TypeError and are not in tests/core/places_test.cc: what they take last may
# be any number of arguments, programs call them, or they can hardly be called wrongly there.
NO_PLACE = {
    "attributes.h": "Item",
    "block.h": "block block_like override_block block_path",
    "checkpoint.h": "operator()",
    "conv.h": "ConvPadding",
    "devices.h": "devices plugin_info",
    "file.h": "operator()",
    "hook.h": "ScopedHooks",
    "metrics.h": "operator()",
    "native.h": "native operator()",
    "npy.h": "read_npy read_npz read_npy_header",
    "pending.h": "wait",
    "print.h": "PrintFormat",
    "program.h": "verify",
    "random.h": "key",
    "tap.h": "TapMap",
    "tensor.h": "copy_of",
    "transforms.h": "HostVjp next with_vjp vjp linearize linear_transpose",
}

# The functions whose use their types do not tell, by header.
NOT_OBVIOUS = {
    "arrange.h": "split_at diagonal",
    "attributes.h": "Attributes",
    "block.h": "block override_block ffi_call",
    "call.h": "call",
    "check.h": "check",
    "checkpoint.h": "resume",
    "control.h": "cond switch_ while_loop fori_loop scan map",
    "conv.h": "conv conv_general",
    "devices.h": "configure",
    "file.h": "saved_text",
    "hook.h": "hook",
    "indexing.h": "take_along_axis index_add dynamic_slice gather scatter",
    "jit.h": "start_with with_hooks",
    "linalg.h": "linalg::plu linalg::triangular_solve",
    "listen.h": "listen::stats",
    "live.h": "hooks_of",
    "nn.h": "dropout cross_entropy",
    "optimize.h": "optimize::Optimizer",
    "metrics.h": "listen::tensorboard",
    "native.h": "native",
    "ops.h": "where pad sum dot_general take",
    "pending.h": "start_call",
    "print.h": "print",
    "products.h": "einsum tensordot",
    "random.h": "random::split",
    "record.h": "record",
    "reduce.h": "reduce associative_scan",
    "registry.h": "register_function",
    "shard.h": "device_put shard_map all_gather ppermute",
    "sharding.h": "Sharding",
    "signal.h": "reduce_window",
    "sort.h": "sort_by searchsorted",
    "state.h": "register_state",
    "tap.h": "tap",
    "tensor.h": "borrow operator[]",
    "transforms.h": "jvp vjp linearize linear_transpose grad value_and_grad jacfwd vmap vectorize"
    " custom_jvp custom_vjp linear_call custom_linear_solve custom_root call_with_vjp checkpoint",
    "tree.h": "map_leaves named",
    "view.h": "View",
}

PRELUDE = """\
#include <postern/optimize.h>
#include <postern/pool.h>
#include <postern/postern.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <numeric>
#include <random>

namespace pn = postern;

static int wrong = 0;

static void run(void (*example)(), const char* file, int line) {
  try {
    example();
    return;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s:%d: %s\\n", file, line, e.what());
  }
  ++wrong;
}

static void expect(const pn::Tensor& y, const std::string& printed, const char* file, int line) {
  std::string text;  // on one line, with single blanks and without points at the end of numbers
  for (const char c : pn::to_string(y) + " ") {
    if (c != ' ' && c != '\\n') {
      if (c == ']' && text.ends_with(' ')) text.pop_back();
      text += c;
      continue;
    }
    if (text.ends_with('.')) text.pop_back();
    if (!text.ends_with(' ') && !text.ends_with('[')) text += ' ';
  }
  text.pop_back();
  for (std::size_t at; (at = text.find(".]")) != std::string::npos;) text.erase(at, 1);
  if (text == printed) return;
  std::fprintf(stderr, "%s:%d: prints %s, the comment says %s\\n", file, line, text.c_str(),
               printed.c_str());
  ++wrong;
}
"""


def text_of(comment):
    return " ".join(line.strip() for line in comment)


def code_of(comment):
    """The lines of a comment's example, without their indentation; empty where others are."""
    return [line[2:] if line.startswith("  ") else "" for line in comment]


def described(library, items, above, in_class=False):
    """Each public function with its comment, and what is said above it for all."""
    group, section = [], ""
    for item in items:
        if item.kind == "heading":
            group, section = [], ""
            continue
        if item.kind == "prose":
            group, section = [], f"{section} {text_of(item.comment)}"
            continue
        group = item.comment or ([] if item.apart else group)
        if library.hidden(item, in_class):
            continue
        over = f"{above} {section}"
        if item.members is not None:
            yield from described(library, item.members, f"{over} {text_of(group)}", True)
        if item.kind == "function":
            yield item, group, over


def throws_nothing(item):
    """Whether its declaration says so."""
    last = item.name.split("::")[-1]
    return item.defaulted or last.startswith("~") or "noexcept" in item.head


def without_errors(library, header):
    """The functions of which no comment says what they throw."""
    parsed = library.headers[header]
    errors = FAILS if header.name in ("c.h", "guest.h") else THROWS
    for item, comment, over in described(library, parsed.items, text_of(parsed.opening)):
        own = f"{text_of(comment)} {text_of([item.tail])}"
        if not (errors.search(own) or FOR_ALL.search(over) or throws_nothing(item)):
            yield item


def commented(items):
    """Every item that has a comment or is below one, with that: functions, classes and others."""
    group = []
    for item in items:
        if item.kind in ("heading", "prose"):
            group = []
            continue
        group = item.comment or ([] if item.apart else group)
        yield item, group
        if item.members is not None:
            yield from commented(item.members)


def droppable(library, header):
    """The functions of a pure header of which the compiler lets the result be dropped."""
    for item, _, _ in described(library, library.headers[header].items, ""):
        returns = item.head.split(item.name.split("::")[-1])[0]
        if header.stem in PURE and "Tensor" in returns and "[[nodiscard]]" not in returns:
            yield item


def without_place(library, header, tested):
    """The functions that throw TypeError and that no test calls to see whose line it names."""
    parsed = library.headers[header]
    seen = set()
    for item, comment, over in described(library, parsed.items, text_of(parsed.opening)):
        own = f"{text_of(comment)} {text_of([item.tail])}"
        said = own if THROWS.search(own) else own + over
        name = item.name.split("::")[-1]
        if "TypeError" not in said or throws_nothing(item) or name in seen:
            continue
        seen.add(name)
        if name in NO_PLACE.get(header.name, "").split():
            continue
        word = rf"\b{re.escape(name)}\b(?=[(<{{])"
        if name.startswith("operator"):
            word = re.escape(name.removeprefix("operator").strip("[]()"))
        if not re.search(word, tested):
            yield item


def without_example(library, header):
    """Of the functions of this header whose use is not obvious, those that nothing shows."""
    parsed = library.headers[header]
    shown = "\n".join(code_of(parsed.opening))
    for name in NOT_OBVIOUS.get(header.name, "").split():
        found = [group for item, group in commented(parsed.items) if item.name == name]
        word = re.escape(name.split("::")[-1])
        if not any(any(code_of(group)) for group in found) and not re.search(
            rf"\b{word}\b(?=[(<])", shown
        ):
            yield name


def examples(library):
    """(header's name, line, lines of code) of each example of functions and classes."""
    for header, parsed in library.headers.items():
        if header.name in SKIPPED:
            continue
        for item, _ in commented(parsed.items):
            code = code_of(item.comment)
            if any(code):
                # The comment ends on the line above its declaration.
                yield header.name, item.line - len(code), code


def program(library):
    """A program of all examples, each a function of its own."""
    out, runs = [PRELUDE], []
    for header, line, code in examples(library):
        name = f"example_{len(runs)}"
        runs.append(f'  run({name}, "{header}", {line});')
        out += [f"static void {name}() {{", f'#line {line} "{header}"']
        for number, text in enumerate(code, line):
            if printed := PRINTED.match(text):
                y, value = printed.groups()
                text += f'\nexpect({y}, "{value}", "{header}", {number});\n#line {number + 1}'
            out.append(text)
        out.append("}")
    out += ["int main() {", "  pn::configure({.cpu_devices = 2});"]
    return "\n".join([*out, *runs, "  pn::barrier();", "  return wrong != 0;", "}", ""])
