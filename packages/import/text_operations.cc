// Finding the operations of a text.
//
// One pass over the characters, which changes nothing. Strings and comments are stepped over, as
// their brackets and names mean nothing, and an arrow's > closes nothing. More brackets closed than
// opened are XLA's to refuse. Braces belong to the operation before them, so that those of
// attributes are regions too, of which nothing comes.
#include "text_operations.h"

#include <algorithm>
#include <utility>

#include "attribute_numbers.h"
#include "rules.h"

namespace postern::internal::imported {

namespace {

constexpr auto npos = MlirText::npos;

bool is_dialect(std::string_view word) {
  return word.starts_with("stablehlo.") || word.starts_with("chlo.") || word.starts_with("func.") ||
         word == "arith.constant";
}

class Scan {
 public:
  Scan(const MlirText& text, bool generic) : text_(text), generic_(generic) {
    out_.regions.push_back({0, npos, npos});
  }

  TextOperations read() {
    const std::string_view all = text_.text();
    for (std::size_t i = 0; i < all.size();) {
      switch (all[i]) {
        case '"': i = string(i); break;
        case '%':
        case '^':
        case '#':
        case '!': i = text_.word_end(i + 1); break;
        case '@': i = symbol(i); break;
        case '/': i = std::max(text_.comment_end(i), i + 1); break;
        case '-': i += all.substr(i).starts_with("->") ? 2 : 1; break;
        case '(':
        case '[':
        case '<':
        case '{': open(i++); break;
        case ')':
        case ']':
        case '>':
        case '}': close(i++); break;
        default: i = std::max(word(i), i + 1);
      }
    }
    return std::move(out_);
  }

 private:
  void open(std::size_t i) {
    constexpr int deepest = 500;
    if (++depth_ > deepest)
      text_.refuse(i, fmt::format("brackets are nested more than {} deep", deepest),
                   ErrorCode::resource_exhausted);
    if (text_.at(i) != '{') return;
    out_.regions.push_back({region_, operation_, npos, i});
    region_ = out_.regions.size() - 1;
  }
  void close(std::size_t i) {
    depth_ = std::max(depth_ - 1, 0);
    if (text_.at(i) != '}') return;
    end_last(i);
    TextRegion& ended = out_.regions[region_];
    ended.to = i;
    operation_ = ended.owner;
    region_ = ended.outer;
  }

  std::size_t string(std::size_t i) {
    const std::size_t end = text_.string_end(i);
    const std::string_view name = text_.part(i + 1, end - 1);
    if (name.starts_with("vhlo."))
      text_.refuse(i, "operations of VHLO are read from portable artifacts, not from text",
                   ErrorCode::unimplemented);
    if (!generic_ && (name == "func.func" || name == "stablehlo.custom_call"))
      text_.refuse(i,
                   fmt::format("a {} in MLIR's generic form cannot be read; print the module in "
                               "StableHLO's own form",
                               name == "func.func" ? "function" : "custom call"),
                   ErrorCode::unimplemented);
    one_device(name, end);
    if (is_dialect(name) && text_.at(text_.skip_space(end)) == '(') operation(name, i, end);
    return end;
  }

  std::size_t symbol(std::size_t i) {
    MlirText::Symbol found = text_.symbol(i);
    const std::size_t end = found.end;
    if (operation_ != npos) out_.all[operation_].symbols.push_back(std::move(found));
    return end;
  }

  std::size_t word(std::size_t i) {
    const std::size_t end = text_.word_end(i);
    const std::string_view name = text_.part(i, end);
    if (name.empty()) return end;
    one_device(name, end);
    const bool applied = std::exchange(applies_, name == "applies");
    if (!applied && (is_dialect(name) || name == "call" || name == "return" ||
                     (generic_ && name == "sdy.sharding_constraint")))
      operation(name, i, end);
    return end;
  }

  void operation(std::string_view name, std::size_t at, std::size_t end) {
    std::size_t function = npos;
    if (name == "func.func")
      function = out_.all.size();
    else if (const std::size_t owner = out_.regions[region_].owner; owner != npos)
      function = out_.all[owner].function;
    const std::size_t from = begins(at);
    end_last(from);
    operation_ = out_.regions[region_].last = out_.all.size();
    out_.all.push_back({name, from, at, end, text_.text().size(), region_, function, {}});
  }
  /// The operation before this one, in the same region.
  void end_last(std::size_t i) {
    if (const std::size_t last = out_.regions[region_].last; last != npos)
      out_.all[last].limit = std::max(i, out_.all[last].end);
  }

  /// Where `%a, %b:2 =` in front of an operation begins.
  std::size_t begins(std::size_t at) const {
    const auto before = [&](std::size_t i) {
      while (i > 0 && std::string_view(" \t\r\n").find(text_.at(i - 1)) != npos) --i;
      return i;
    };
    std::size_t i = before(at), out = at;
    if (i == 0 || text_.at(i - 1) != '=') return at;
    do {
      i = before(i - 1);
      while (i > 0 && (MlirText::is_word(text_.at(i - 1)) || text_.at(i - 1) == ':')) --i;
      if (i == 0 || text_.at(i - 1) != '%') return out;
      out = i - 1;
      i = before(out);
    } while (i > 0 && text_.at(i - 1) == ',');
    return out;
  }

  /// Refuses an attribute that says that there are several devices.
  void one_device(std::string_view name, std::size_t end) const {
    if (std::ranges::find(says_devices, name) == std::end(says_devices)) return;
    const std::size_t equal = text_.skip_space(end);
    if (text_.at(equal) != '=') return;
    const std::size_t value = text_.skip_space(equal + 1),
                      to = text_.find_outside(value, ",", text_.text().size());
    std::string_view operation;
    if (operation_ != npos) operation = bare_name(out_.all[operation_].name);
    try {
      require_one_device(operation, name, numbers_of_text(text_.trimmed(value, to)));
    } catch (const Error& e) {
      text_.refuse(end, e.what(), e.code());
    }
  }

  const MlirText& text_;
  const bool generic_;
  TextOperations out_;
  std::size_t region_ = 0, operation_ = npos;  // in which we are, and that came last
  int depth_ = 0;
  bool applies_ = false;  // the word before
};

/// The colon in front of an operation's types.
std::size_t colon_of(const MlirText& text, const TextOperation& operation) {
  return text.find_outside(operation.end, ":", operation.limit);
}

}  // namespace

TextOperations read_operations(const MlirText& text, bool generic) {
  return Scan(text, generic).read();
}

TextSignature signature_of(const MlirText& text, const TextOperation& operation) {
  TextSignature out;
  std::size_t i = colon_of(text, operation);
  if (i >= operation.limit || text.at(i) != ':') return out;
  out.begins = i + 1;
  for (const MlirText::Range& range : text.types(i + 1, i))
    out.operands.push_back(text.type(range));
  out.results = out.operands;
  if (const std::size_t arrow = text.skip_space(i); text.text().substr(arrow).starts_with("->")) {
    out.results.clear();
    for (const MlirText::Range& range : text.types(arrow + 2, i))
      out.results.push_back(text.type(range));
  }
  out.end = i;
  return out;
}

std::vector<TextValue> operands_of(const MlirText& text, const TextOperation& operation) {
  std::vector<TextValue> out;
  const std::size_t colon = colon_of(text, operation);
  for (std::size_t i = operation.end; i < colon;) {
    const char c = text.at(i);
    if (c == '"') {
      i = text.string_end(i);
    } else if (c == '{') {
      i = text.bracket_end(i);
    } else if (c == '%') {
      std::size_t to = text.word_end(i + 1);
      if (text.at(to) == '#') to = text.word_end(to + 1);
      out.push_back({i, to});
      i = to;
    } else {
      i = std::max(text.comment_end(i), i + 1);
    }
  }
  return out;
}

}  // namespace postern::internal::imported
