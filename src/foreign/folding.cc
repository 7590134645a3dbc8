// Barriers in front of what XLA folds to something else, or ends the process over.
#include "foreign/folding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "foreign/foreign.h"

namespace postern::internal::foreign {

namespace {

constexpr std::string_view dialect = "stablehlo.";

class Hiding {
 public:
  explicit Hiding(const MlirText& text) : text_(text) {
    while (text_.text().find(name_) != MlirText::npos) name_ += '_';
  }

  std::vector<Edit> edits() {
    const std::string_view all = text_.text();
    for (std::size_t i = 0; i < all.size();) {
      if (all[i] == '"') {
        const std::size_t end = text_.string_end(i);
        if (all.substr(i + 1).starts_with(dialect))
          operation(i, text_.part(i + 1 + dialect.size(), end - 1), end);
        i = end;
      } else if (all[i] == '/' && text_.at(i + 1) == '/') {
        i = std::min(all.find('\n', i), all.size());
      } else if (all.substr(i).starts_with(dialect)) {
        const std::size_t name = i + dialect.size();
        std::size_t end = name;
        while (is_word(text_.at(end))) ++end;
        operation(i, text_.part(name, end), end);
        i = end;
      } else {
        ++i;
      }
    }
    return std::move(edits_);
  }

 private:
  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  static bool is_value(char c) {
    return is_word(c) || c == '$' || c == '.' || c == '-' || c == '#';
  }

  /// `%result = `, which ends at `at`: where it begins.
  std::optional<std::size_t> statement(std::size_t at) const {
    auto back = [&](auto&& test) {
      while (at > 0 && test(text_.at(at - 1))) --at;
    };
    auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
    back(space);
    if (at == 0 || text_.at(at - 1) != '=') return {};
    --at;
    back(space);
    back(is_value);
    if (at == 0 || text_.at(at - 1) != '%') return {};
    return at - 1;
  }

  void operation(std::size_t at, std::string_view name, std::size_t end) {
    if (!folds_wrongly(name, "tensor<i32>")) return;
    const std::optional<std::size_t> begins = statement(at);
    std::size_t from = text_.skip_space(end);
    if (text_.at(from) == '(') from = text_.skip_space(from + 1);
    if (!begins || text_.at(from) != '%') return;
    std::size_t to = from + 1;
    while (is_value(text_.at(to))) ++to;
    std::size_t colon = text_.find_outside(end, ":", text_.text().size());
    if (text_.at(colon) != ':') return;
    const auto types = text_.types(colon + 1, colon);
    if (types.empty()) return;
    const std::string_view type = text_.type(types[0]);
    if (!folds_wrongly(name, type)) return;
    const std::string hidden = fmt::format("{}{}", name_, edits_.size());
    edits_.push_back({*begins, *begins,
                      fmt::format("{} = stablehlo.optimization_barrier {} : {}\n    ", hidden,
                                  text_.part(from, to), type)});
    edits_.push_back({from, to, hidden});
  }

  const MlirText& text_;
  std::string name_ = "%hidden_";  // of which the text has none
  std::vector<Edit> edits_;
};

}  // namespace

bool folds_wrongly(std::string_view operation, std::string_view type) {
  if (operation != "divide" && operation != "remainder" && operation != "count_leading_zeros")
    return false;
  try {
    return is_integer(mlir_type(type).dtype);
  } catch (const Error&) {
    return false;  // XLA says what it is
  }
}

std::vector<Edit> hidden_from_folding(const MlirText& text) { return Hiding(text).edits(); }

}  // namespace postern::internal::foreign
