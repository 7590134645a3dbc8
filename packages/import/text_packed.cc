// Writing conversions around operations.
#include "text_packed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rules.h"
#include "text_operations.h"

namespace postern::internal::imported {

namespace {

class Widening {
 public:
  Widening(std::string_view text, const std::string& name) : text_(text, name) {
    while (text.find(name_) != MlirText::npos) name_ += '_';
  }

  std::string write() {
    for (const TextOperation& op : read_operations(text_).all) operation(op);
    if (last_ == 0) return {};
    return out_ += text_.text().substr(last_);
  }

 private:
  std::string new_name() { return fmt::format("{}{}", name_, names_++); }
  void replace(std::size_t from, std::size_t to, std::string_view by) {
    out_ += text_.part(last_, from);
    out_ += by;
    last_ = to;
  }

  void operation(const TextOperation& op) {
    const std::string_view name = bare_name(op.name);
    const bool converts = name == "convert";
    if ((!converts && !moves_axes(name)) || op.begins == op.at) return;
    const TextSignature types = signature_of(text_, op);
    const std::vector<TextValue> values = operands_of(text_, op);
    if (types.results.size() != 1 || values.empty() || values.size() != types.operands.size())
      return;
    if (converts)
      behind_barrier(op, types, values[0]);
    else
      widened(op, types, values);
  }

  /// What layout the wider ones have ends there.
  std::string barrier(std::string_view result, std::string_view value, std::string_view type) {
    return fmt::format("{} = stablehlo.optimization_barrier {} : {} ", result, value, type);
  }
  static std::string conversion(std::string_view result, std::string_view value,
                                std::string_view from, std::string_view to) {
    return fmt::format("{} = stablehlo.convert {} : ({}) -> {} ", result, value, from, to);
  }

  void behind_barrier(const TextOperation& op, const TextSignature& types, const TextValue& value) {
    if (in_bytes(types.results[0]).empty() || !in_bytes(types.operands[0]).empty()) return;
    const std::string seen = new_name();
    replace(op.begins, op.begins,
            barrier(seen, text_.part(value.from, value.to), types.operands[0]));
    replace(value.from, value.to, seen);
  }

  void widened(const TextOperation& op, const TextSignature& types,
               const std::vector<TextValue>& values) {
    std::vector<std::string> names, operands;
    std::string before;
    for (std::size_t i = 0; i < values.size(); ++i) {
      names.emplace_back(text_.part(values[i].from, values[i].to));
      operands.push_back(in_bytes(types.operands[i]));
      if (operands[i].empty()) {
        operands[i] = types.operands[i];
        continue;
      }
      const std::string wide = new_name();
      before += conversion(wide, names[i], types.operands[i], operands[i]);
      names[i] = wide;
    }
    if (before.empty()) return;
    const std::size_t end = text_.word_end(op.begins + 1);
    const std::string_view result = text_.part(op.begins, end);
    std::string given(result), behind, type = in_bytes(types.results[0]);
    if (type.empty()) {
      type = types.results[0];
    } else {
      const std::string seen = new_name();
      given = new_name();
      behind = barrier(seen, given, type) + conversion(result, seen, type, types.results[0]);
    }
    replace(op.begins, end, before + given);
    for (std::size_t i = 0; i < values.size(); ++i) replace(values[i].from, values[i].to, names[i]);
    replace(types.begins, types.end,
            fmt::format(" ({}) -> {} {}", fmt::join(operands, ", "), type, behind));
  }

  const MlirText text_;
  std::string name_ = "%bytes_";  // of which the text has none
  int names_ = 0;
  std::string out_;
  std::size_t last_ = 0;  // up to which the text is written
};

}  // namespace

std::string with_bytes_moved(std::string_view text, const std::string& name) {
  for (const char* packed : {"xi2>", "xi4>", "xui2>", "xui4>", "xf4E2M1FN>"})
    if (text.find(packed) != text.npos) return Widening(text, name).write();
  return {};
}

}  // namespace postern::internal::imported
