// Constants in StableHLO: how they are written, and what XLA must not make of them.
#include "lower/constants.h"

#include <algorithm>
#include <cmath>

#include "core/lists.h"
#include "core/text.h"
#include "core/value.h"
#include "trace/literal.h"

namespace postern::internal {

namespace {

/// Integers of less than a byte, and pred, are written one by one; all others as the bytes that
/// they are.
bool has_bytes(DType dtype) {
  return is_float(dtype) || (dtype != DType::pred && bit_width(dtype) >= 8);
}

bool is_nan(const Number& n) { return std::isnan(n.real) || std::isnan(n.imag); }

/// Returns whether there is nan among the elements, or may be: of floats of 8 bits and less, which
/// the host cannot read as numbers.
bool may_hold_nan(const Type& type, const unsigned char* bytes) {
  if (!is_float(type.dtype) && !is_complex(type.dtype)) return false;
  if (!is_number(type.dtype)) return true;
  for (std::size_t i = 0; i < size_of(type.size()); ++i)
    if (is_nan(read_number(type.dtype, bytes + i * byte_width(type.dtype)))) return true;
  return false;
}

/// Returns whether a result is nan wherever an operand is.
bool passes_nan(const Equation& e) {
  constexpr std::string_view such[] = {"add",      "subtract", "multiply",
                                       "divide",   "negate",   "exponential",
                                       "log",      "sqrt",     "exponential_minus_one",
                                       "logistic", "rsqrt",    "log_plus_one"};
  const std::string_view hlo = text_or(e.primitive->hlo, "");
  return std::ranges::find(such, hlo) != std::end(such);
}

}  // namespace

std::size_t nan_operand(const Lowering& out, const Equation& e) {
  const std::size_t none = e.operands.size();
  if (!passes_nan(e)) return none;
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    const Type &in = out.operand_type(e, i), &result = out.result_type(e);
    const Number* every = out.every_element(e, i);
    if (every && is_nan(*every) && is_float(in.dtype) && alike(in, result)) return i;
  }
  return none;
}

bool moves_only(const Equation& e) {
  const std::string_view hlo = text_or(e.primitive->hlo, "");
  return hlo == "broadcast_in_dim" || hlo == "reshape";
}

Ssa Lowering::constant(std::string_view element, const Type& type) {
  const Ssa r = fresh();
  mark_read(r);
  set_known(r, {.constant = true});
  if (type.size() == 0) element = {};
  write("    %{} = stablehlo.constant dense<{}> : {}\n", r.id, element, this->type(type));
  return r;
}

Ssa Lowering::bytes_constant(const Type& type, const void* data) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  const auto count = size_of(type.size());
  if (count == 0) return constant("", type);
  std::string text;
  if (!has_bytes(type.dtype)) {
    // A list needs the brackets of its shape: write it flat and reshape.
    const Type flat{type.dtype, {type.size()}};
    Separator comma(", ", "[");
    for (std::size_t i = 0; i < count; ++i)  // a byte each
      text.append(comma()).append(literal_text(read_number(type.dtype, bytes + i), type.dtype));
    const Ssa shaped = op("reshape", {constant(text + "]", flat)}, {&flat}, type);
    set_known(shaped, {.constant = true});
    return shaped;
  }
  text = "\"0x";
  for (std::size_t i = 0; i < type.byte_size(); ++i)
    fmt::format_to(std::back_inserter(text), "{:02X}", bytes[i]);
  const Ssa value = constant(text + '"', type);
  if (!may_hold_nan(type, bytes)) return value;
  // In a loop LLVM would know the numbers as well, and XLA's exponential of nan, as LLVM folds it,
  // is 0.
  const Ssa hidden = op("optimization_barrier", {value}, {&type}, type);
  mark_read(hidden);
  set_known(hidden, {.constant = true});
  return hidden;
}

void Lowering::set_known(Ssa value, const Known& known) {
  if (known_.size() <= at(value.id)) known_.resize(2 * at(next_));
  known_[at(value.id)] = known;
}

Lowering::Known Lowering::known(const Equation& e, std::size_t i) const {
  const std::size_t value = at(latest(env_[at(e.operands[i])]).id);
  if (value < known_.size()) return known_[value];
  return {};
}

const Number* Lowering::every_element(const Equation& e, std::size_t i) const {
  return known(e, i).every;
}

/// Returns whether XLA might compute the equation while it compiles, with another result than when
/// it runs: any pure operation on constants alone that does more than move them. XLA also makes
/// constants of what is none, as x - x: so what ends the process when folded, or is folded wrongly
/// in all of its passes, counts whatever the operands are: integer division by what may be 0,
/// count_leading_zeros, and complex division by a constant.
bool Lowering::folds_wrongly(const Equation& e) const {
  if (e.operands.empty()) return false;
  bool all_constant = true;
  for (std::size_t i = 0; i < e.operands.size() && all_constant; ++i)
    all_constant = known(e, i).constant;
  const std::string_view hlo = text_or(e.primitive->hlo, "");
  const bool divides = hlo == "divide" || hlo == "remainder";
  // Most operations end here.
  if (!all_constant && !divides && hlo != "count_leading_zeros") return false;
  if (effect_of(e) != Effect::pure || (e.params && !programs_of(*e.params).empty())) return false;
  if (hlo == "count_leading_zeros") return true;
  // XLA multiplies by 1 / z instead, which is nan where z has an infinite part.
  if (hlo == "divide" && is_complex(operand_type(e, 0).dtype) && known(e, 1).constant) return true;
  if (divides && is_integer(operand_type(e, 0).dtype)) {
    const Number* divisor = every_element(e, 1);
    if (!divisor || is_zero(*divisor)) return true;
  }
  return all_constant && !moves_only(e);
}

void Lowering::by_rule_of_hidden(const Equation& e, bool folds, bool gathers) {
  std::vector<Ssa> before;  // by operand: only this equation reads what is hidden
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    Ssa& value = env_[at(e.operands[i])];
    const Type& type = operand_type(e, i);
    before.push_back(value);
    if (folds && (i == 0 || known(e, i).constant))
      value = op("optimization_barrier", {operand(e, i)}, {&type}, type);
    if (gathers && bit_width(type.dtype) == 2)
      value = with_sharding(operand(e, i), type, "{replicated}");
  }
  by_rule(e);
  // Backwards: of an operand that comes twice the first has the value that was there before.
  for (std::size_t i = e.operands.size(); i-- > 0;) env_[at(e.operands[i])] = before[i];
}

}  // namespace postern::internal
