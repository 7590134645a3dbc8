// Writing elementwise operations of StableHLO.
#pragma once
#include "lower/lowering.h"
#include "ops/reduce.h"
#include "trace/literal.h"

namespace postern::internal {

/// Writes operations on values of one type, and comparisons of them.
class Elements {
 public:
  Elements(Lowering& out, const Type& type) : out_(&out), type_(type) {}
  const Type& type() const { return type_; }
  Ssa number(const Number& n) const { return out_->constant(literal_text(n, type_.dtype), type_); }
  Ssa number(std::int64_t n) const { return number(integer_number(n)); }
  Ssa one(const char* hlo, Ssa a) const { return out_->op(hlo, {a}, {&type_}, type_); }
  Ssa two(const char* hlo, Ssa a, Ssa b) const {
    return out_->op(hlo, {a, b}, {&type_, &type_}, type_);
  }
  Ssa compare(const char* direction, Ssa a, Ssa b) const {
    return out_->op("compare", {a, b}, {&type_, &type_}, pred_,
                    comparison_text(direction, type_.dtype));
  }
  Ssa is_nan(Ssa a) const { return compare("NE", a, a); }
  Ssa both(Ssa a, Ssa b) const { return out_->op("and", {a, b}, {&pred_, &pred_}, pred_); }
  Ssa either(Ssa a, Ssa b) const { return out_->op("or", {a, b}, {&pred_, &pred_}, pred_); }
  Ssa select(Ssa condition, Ssa a, Ssa b) const {
    return out_->op("select", {condition, a, b}, {&pred_, &type_, &type_}, type_);
  }

 private:
  Lowering* out_;
  Type type_, pred_{DType::pred, type_.dims};
};

}  // namespace postern::internal
