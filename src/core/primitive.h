// Primitive: a name and its rules. One constant for each operation; its address is its identity.
#pragma once
#include <postern/tensor.h>

#include "core/program.h"

#include <span>
#include <utility>
#include <vector>

namespace postern::internal {

class Lowering;
struct Primitive;
struct SiteSpec;
using Types = std::vector<Type>;
using detail::TensorFunction;
using detail::Tensors;
using TensorSpan = std::span<const Tensor>;

/// The types of some operands, without copies.
class TypeSpan {
 public:
  TypeSpan(const Type* const* types, std::size_t count) : types_(types), count_(count) {}
  const Type& operator[](std::size_t i) const { return *types_[i]; }
  std::size_t size() const { return count_; }

 private:
  const Type* const* types_;
  std::size_t count_;
};

/// How a primitive with a transpose rule is linear in its differentiable operands: in all of them
/// together (add, concatenate, convert) or in each of them alone (multiply, dot_general). `first`:
/// in the first operand alone, for which there is a transpose beside the jvp (divide).
enum class Linear : std::uint8_t { no, jointly, separately, first };

/// What runs the programs that a primitive holds, for who follows values into them.
enum class ControlFlow : std::uint8_t {
  none,        // it has no program, or one for its own rules alone
  parts,       // each device, on its parts
  branches,    // one of them, which the first operand says
  while_loop,  // the last, as long as the one before says so
  scan         // so often as the parameters or the first operand say
};

/// The operands and results of one equation in host memory, row-major.
struct HostArrays {
  TypeSpan types;  // of the operands
  std::span<const void* const> operands;
  const Types& results;  // types
  std::span<void* const> to;
};

/// What a rule is asked about: the primitive and its parameters, to bind it again or to look into.
struct Op {
  const Primitive& primitive;
  const ParamsPtr& params;
  template <class P>
  const P& as() const {
    return postern::internal::as<P>(*params);
  }
};

/// In the rules an empty Tensor is a zero tangent, a zero cotangent, or an unknown operand.
struct Primitive {
  const char* name = nullptr;
  const char* hlo = nullptr;  // the StableHLO operation, where one without attributes is enough

  /// Operand types and parameters to result types; the only rule that may refuse.
  Types (*type)(const Params* params, TypeSpan operands) = nullptr;

  /// Values and tangents of the results, asked for where an operand has a tangent; for what is not
  /// linear.
  std::pair<Tensors, Tensors> (*jvp)(const Op& op, TensorSpan x, TensorSpan dx) = nullptr;

  /// Cotangents of the operands that are empty in `x` (their types are in `types`), for what is
  /// linear in them; what it gives for others is not looked at.
  Tensors (*transpose)(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan types) = nullptr;
  Linear linear = Linear::no;
  bool no_derivative = false;  // on purpose: integer or piecewise constant results

  /// Splits the equation by which operands are known (the others are empty) and which results are
  /// wanted: see transform/split.h. Only for what holds programs or shows derivatives.
  struct SplitResult;
  SplitResult (*split)(const Op& op, TensorSpan x, const std::vector<bool>& wanted) = nullptr;

  /// The same parameters with other programs in the place of programs_of(params); for what holds
  /// programs.
  ParamsPtr (*with_programs)(const Params* params, std::span<const ProgramPtr> programs) = nullptr;
  bool transparent = false;  // means no more than its program applied to its operands
  ControlFlow control = ControlFlow::none;
  constexpr bool loops() const {
    return control == ControlFlow::while_loop || control == ControlFlow::scan;
  }

  /// Each axis of the result is one of the operands' or none: its type rule, asked with another
  /// extent, says which.
  bool keeps_axes = false;

  /// Operands with the batch axis at `axes[i]` (-1: none); the result's axes likewise. `mask`: the
  /// live elements of the batch, empty for all.
  std::pair<Tensors, std::vector<int>> (*batch)(const Op& op, TensorSpan x,
                                                std::span<const int> axes, std::int64_t size,
                                                const Tensor& mask) = nullptr;

  /// Writes StableHLO; the default writes `hlo`.
  void (*lower)(Lowering& out, const Equation& equation) = nullptr;

  /// Runs on concrete tensors; the default compiles the equation, once for params and types.
  Tensors (*evaluate)(const Op& op, TensorSpan x) = nullptr;

  /// Computes the results in host memory, to the bits that XLA computes; false where it leaves that
  /// to XLA: for elements that it does not know, or that are unusual (`ops/on_host.h`).
  bool (*on_host)(const Params* params, const HostArrays& arrays) = nullptr;

  Effect (*effect)(const Params* params) = nullptr;  // default: pure
  bool distinct = false;                             // two equal equations are never merged
  bool calls = false;                                // it is lowered as a call of a host function
  bool may_call = false;  // what it becomes when it is lowered may call back: a block
  /// Of what has a program: whether its derivatives are rules of its own, not the program's.
  bool (*has_rules)(const Params* params) = nullptr;

  /// What a print of the program says beside the equation: the path that a block takes on a
  /// platform.
  std::string (*remark)(const Params* params, const std::string& platform) = nullptr;

  /// The mesh axes along which devices meet in it; null for what is no collective.
  std::vector<std::string> (*rendezvous_axes)(const Params& params) = nullptr;
  bool gives_same = false;  // to all devices that meet

  /// The host function's site, for calls and taps.
  const SiteSpec* (*site)(const Params* params) = nullptr;

  /// How many operations on numbers it takes; null: one for each element of its results.
  double (*flops)(const Params* params, TypeSpan operands) = nullptr;
};

/// Returns the place of the call or tap that an equation is; null for all others.
inline const SiteSpec* site_of(const Equation& e) {
  if (!e.primitive->site) return nullptr;
  return e.primitive->site(e.params.get());
}

/// Returns the same primitive, of an operation that keeps_axes.
constexpr Primitive keeping_axes(Primitive p) {
  p.keeps_axes = true;
  return p;
}

/// Returns the same primitive with that rule.
constexpr Primitive with_flops(Primitive p, decltype(p.flops) rule) {
  p.flops = rule;
  return p;
}
constexpr Primitive with_on_host(Primitive p, decltype(p.on_host) rule) {
  p.on_host = rule;
  return p;
}

/// Returns whether every rule that a primitive of an op family needs is there. Of jvp, transpose
/// and no_derivative it needs one; both rules where it is linear in its first operand alone.
constexpr bool complete([[maybe_unused]] const Primitive& p) {
#ifdef __SANITIZE_ADDRESS__  // g++ with checks for null takes no function's address for non-null in
                             // a constant; other builds do
  return true;
#else
  const int derivatives = (p.jvp != nullptr) + (p.transpose != nullptr) + p.no_derivative;
  return p.name && p.type && p.batch && (p.lower || p.hlo) &&
         derivatives == 1 + (p.linear == Linear::first) &&
         ((p.transpose != nullptr) == (p.linear != Linear::no));
#endif
}
template <std::size_t n>
constexpr bool complete(const Primitive* const (&all)[n]) {
  for (const Primitive* p : all)
    if (!complete(*p)) return false;
  return true;
}

}  // namespace postern::internal
