// Following constants through a text, to where XLA would fold what it must not.
#include "text_barriers.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "rules.h"

namespace postern::internal::imported {

namespace {

class Hiding {
 public:
  Hiding(const MlirText& text, const TextOperations& operations)
      : text_(text), operations_(operations) {
    while (text_.text().find(name_) != MlirText::npos) name_ += '_';
    for (const TextOperation& op : operations_.all) {
      shapes_ = shapes_ || takes_shapes(bare_name(op.name));
      if (op.function != MlirText::npos) bodies_[name_of(op.function)].push_back(&op);
    }
  }

  std::vector<Edit> edits(const std::vector<std::string>& functions) {
    for (const std::string& function : functions) {
      constants_.clear();
      for (const TextOperation* op : bodies_[function]) operation(function, *op);
    }
    return std::move(edits_);
  }

 private:
  struct Constant {
    std::string_view type;
    std::size_t region;
  };

  std::string name_of(std::size_t function) const {
    const auto& symbols = operations_.all[function].symbols;
    return symbols.empty() ? "" : symbols[0].name;
  }

  const Constant* constant(const TextOperation& op, const TextValue& value) const {
    const auto found = constants_.find(text_.part(value.from, value.to));
    if (found == constants_.end()) return nullptr;
    for (std::size_t region = op.region;; region = operations_.regions[region].outer) {
      if (region == found->second.region) return &found->second;
      if (region == 0) return nullptr;
    }
  }

  void operation(const std::string& function, const TextOperation& op) {
    const std::string_view name = bare_name(op.name);
    if (name == "func") return arguments(function, op);
    const std::vector<TextValue> operands = operands_of(text_, op);
    std::size_t known = 0;
    for (const TextValue& v : operands) known += constant(op, v) != nullptr;
    if (op.name == "call" || op.name == "func.call" || name == "composite") {
      for (std::size_t i = 0; i < operands.size() && !op.symbols.empty(); ++i)
        if (constant(op, operands[i])) arguments_[op.symbols[0].name].insert(i);
    } else if ((op.name == "return" || op.name == "func.return") && function != "main") {
      for (const TextValue& v : operands)
        if (const Constant* c = constant(op, v)) hide(op, v, c->type);
    } else if (!operands.empty()) {
      const bool constants = known == operands.size() && serves(op);
      std::string_view type;
      if (const Constant* c = constant(op, operands[0]))
        type = c->type;
      else if (folds_wrongly(name, "tensor<i32>", false))
        if (const TextSignature s = signature_of(text_, op); !s.operands.empty())
          type = s.operands[0];
      if (folds_wrongly(name, type, constants && !(shapes_ && is_integer_type(type)))) {
        hide(op, operands[0], type);
        for (std::size_t i = 1; i < operands.size() && constants; ++i)
          hide(op, operands[i], constant(op, operands[i])->type);
      }
    }
    results(op, name == "constant" ||
                    (moves_only(name) && operands.size() == 1 && known == operands.size()));
  }

  /// Whether XLA itself serves it, and so may fold it.
  static bool serves(const TextOperation& op) {
    return bare_name(op.name) != "custom_call" ||
           (!op.symbols.empty() && op.symbols[0].name.starts_with("mhlo."));
  }

  /// Those that are constants where the function is called.
  void arguments(const std::string& function, const TextOperation& op) {
    const auto& known = arguments_[function];
    if (known.empty()) return;
    const auto items = text_.items(text_.expect(op.symbols.at(0).end, "(") - 1);
    for (const std::size_t i : known) {
      if (i >= items.size()) continue;
      const std::size_t colon = text_.find_outside(items[i].first, ":", items[i].second);
      if (colon == items[i].second) continue;
      constants_[text_.trimmed(items[i].first, colon)] = {text_.type({colon + 1, items[i].second}),
                                                          op.region};
    }
  }

  void results(const TextOperation& op, bool constant) {
    for (std::size_t i = op.begins; i < op.at; ++i) {
      if (text_.at(i) != '%') continue;
      const std::string_view name = text_.part(i, text_.word_end(i + 1));
      constants_.erase(name);
      if (!constant) continue;
      if (const TextSignature s = signature_of(text_, op); s.results.size() == 1)
        constants_[name] = {s.results[0], op.region};
    }
  }

  // On the operation's own line, for errors to name the lines of the file.
  void hide(const TextOperation& op, const TextValue& value, std::string_view type) {
    const std::string hidden = fmt::format("{}{}", name_, edits_.size());
    edits_.push_back({op.begins, op.begins,
                      fmt::format("{} = stablehlo.optimization_barrier {} : {} ", hidden,
                                  text_.part(value.from, value.to), type)});
    edits_.push_back({value.from, value.to, hidden});
  }

  const MlirText& text_;
  const TextOperations& operations_;
  std::map<std::string, std::vector<const TextOperation*>> bodies_;
  std::map<std::string, std::set<std::size_t>> arguments_;    // that are constants, by function
  std::unordered_map<std::string_view, Constant> constants_;  // of the function that is read
  std::string name_ = "%hidden_";                             // of which the text has none
  std::vector<Edit> edits_;
  bool shapes_ = false;
};

}  // namespace

std::vector<Edit> hidden_from_folding(const MlirText& text, const TextOperations& operations,
                                      const std::vector<std::string>& functions) {
  return Hiding(text, operations).edits(functions);
}

}  // namespace postern::internal::imported
