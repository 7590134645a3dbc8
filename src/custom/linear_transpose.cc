// linear_transpose: a function is followed through its program to see that it is linear, and what
// does not depend on its arguments is split off; the rest runs backwards.
#include <postern/transforms.h>

#include <algorithm>

#include "analysis/follow.h"
#include "core/site_spec.h"
#include "custom/custom.h"
#include "trace/literal.h"
#include "transform/linearize.h"
#include "transform/simplify.h"
#include "transform/split.h"

namespace postern::internal {

namespace {

/// What is known of a value: it is linear in the arguments, it is zero, or it is some constant.
enum class Is : std::uint8_t { constant, zero, linear };
using Kinds = std::vector<Is>;

/// Returns whether the tensor is known to be all zeros: its memory is on the host, all bytes 0.
bool all_zero(const Tensor& t) {
  const detail::HostValue* host = detail::Access::host(t);
  if (!host) return false;
  const auto* bytes = static_cast<const unsigned char*>(host->data.get());
  return std::all_of(bytes, bytes + t.type().byte_size(), [](unsigned char b) { return b == 0; });
}

/// Follows what values are through a program; a lattice of analysis/follow.h for branches and
/// loops.
class Check {
 public:
  explicit Check(const char* what) : what_(what) {}

  /// Returns what the outputs are for what the inputs are. Throws TypeError where the program is
  /// not linear.
  Kinds operator()(const Program& program, const Kinds& inputs) const {
    return follow(program, inputs,
                  [&](const Equation& e, const Kinds& x) { return results_of(program, e, x); });
  }

  using Value = Is;
  Kinds into(const ProgramPtr& program, const Kinds& inputs) const {
    return (*this)(*program, inputs);
  }
  bool join(const Equation& e, std::size_t i, Is& into, Is other) const {
    const char* const which = e.primitive->loops() ? "scan: the carry's leaf" : "cond: result";
    const Is before = std::exchange(into, either(into, other, which, i));
    return into != before;
  }
  static Is number() { return Is::constant; }
  static Is slice(Is x, bool) { return x; }
  static Is stacked(Is y, bool) { return y; }

 private:
  Kinds results_of(const Program& program, const Equation& e, const Kinds& x) const {
    const auto results = at(e.results);
    const Primitive& p = *e.primitive;
    if (std::ranges::find(x, Is::linear) == x.end())
      return Kinds(results, stays_zero(e, x) ? Is::zero : Is::constant);
    const SiteSpec* const site = site_of(e);
    if (site && site->is_tap()) return head(x, results);  // its results are its operands
    require_transpose(e, x);

    if (branches_or_loops(e) && !p.calls) {
      check(p.loops() || x[0] != Is::linear, "{}: which branch cond takes depends on the arguments",
            what_);
      return through(*this, e, x).results;
    }
    // An equation that means its program is what the program is, unless it has a rule of its own.
    std::vector<ProgramPtr> programs;
    if (e.params) programs = programs_of(*e.params);
    bool own_rule = e.primitive == &linear_call_p || p.may_call;
    if (p.has_rules) own_rule = p.has_rules(e.params.get());
    if (programs.size() == 1 && programs[0]->inputs.size() == x.size() && !own_rule)
      return into(programs[0], x);

    const bool adds = programs.empty() && p.linear == Linear::jointly;
    if (adds && &p != &custom_vjp_tangent_p) require_zeros(program, e, x);
    for (std::size_t i = 0; i < results; ++i) {
      const Type& type = program.types[at(e.first) + i];
      check(is_differentiable(type.dtype),
            "{}: {} makes {} of what depends on the arguments, which is not linear", what_, p.name,
            to_string(type));
    }
    return Kinds(results, Is::linear);
  }

  /// Returns whether the results are zero, where no operand depends on the arguments.
  static bool stays_zero(const Equation& e, const Kinds& x) {
    const Primitive& p = *e.primitive;
    if (&p == &literal_p) return is_zero(as<LiteralParams>(*e.params).number);
    if (x.empty() || p.site || (e.params && !programs_of(*e.params).empty())) return false;
    switch (p.linear) {
      case Linear::no: return false;
      case Linear::first: return x[0] == Is::zero;
      case Linear::separately: return std::ranges::find(x, Is::zero) != x.end();
      case Linear::jointly: return std::ranges::find(x, Is::constant) == x.end();
    }
    return false;
  }

  void require_transpose(const Equation& e, const Kinds& x) const {
    const Primitive& p = *e.primitive;
    const auto linear = std::ranges::count(x, Is::linear);
    if (p.site)
      throw_type_error(
          fmt::format("{}: call '{}' of what depends on the arguments may be anything; give it its "
                      "transpose with linear_call",
                      what_, p.site(e.params.get())->name));
    check(p.transpose != nullptr && p.control != ControlFlow::while_loop,
          "{}: {} is not linear or has no transpose, and is applied to what depends on the "
          "arguments",
          what_, p.name);
    check(p.linear != Linear::separately || linear == 1,
          "{}: {} of two operands that depend on the arguments is not linear", what_, p.name);
    check(p.linear != Linear::first || (linear == 1 && x[0] == Is::linear),
          "{}: {} is linear in its first operand only, and another depends on the "
          "arguments",
          what_, p.name);
  }

  /// Refuses constants that an equation adds to what depends on the arguments, unless they are
  /// zero.
  void require_zeros(const Program& program, const Equation& e, const Kinds& x) const {
    for (std::size_t i = 0; i < x.size(); ++i)
      check(x[i] != Is::constant || !is_differentiable(program.type(e.operands[i]).dtype),
            "{}: operand {} of {} does not depend on the arguments and is not seen to be zero, so "
            "that the function is not linear; write zeros inside of the function",
            what_, i, e.primitive->name);
  }

  /// Joins what a value is on two ways to it: in two branches, before and after a step of a loop.
  /// Zero is constant and linear. Throws TypeError, naming leaf `i` of `which`, for the other two
  /// together: what adds a constant at times is not linear.
  Is either(Is a, Is b, const char* which, std::size_t i) const {
    if (a == b || b == Is::zero) return a;
    if (a == Is::zero) return b;
    throw_type_error(
        fmt::format("{}: {} {} is linear in the arguments at times, and at times a "
                    "constant that is not seen to be zero",
                    what_, which, i));
  }

  const char* what_;
};

}  // namespace

std::shared_ptr<const detail::LinearMap> linear_map(const char* what, const TensorFunction& f,
                                                    TensorSpan x) {
  Linearized out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    check(x[i].has_value(), "{}: an argument is an empty Tensor, which has no type", what);
    const Type& type = x[i].type();
    check(is_differentiable(type.dtype),
          "{}: leaf {} of the arguments must be float or complex, got {}", what, i,
          to_string(type));
    out.input_types.push_back({type.dtype, type.dims});
  }
  const Closed closed = trace_user(what, out.input_types, f);
  const ProgramPtr program = simplify(without_rules(*closed.program));

  Kinds inputs(x.size(), Is::linear);
  for (const Tensor& t : closed.captures) {
    inputs.push_back(Is::constant);
    if (all_zero(t)) inputs.back() = Is::zero;
  }
  const Kinds kinds = Check(what)(*program, inputs);
  for (std::size_t i = 0; i < kinds.size(); ++i)
    check(
        kinds[i] != Is::constant,
        "{}: result {} of the function does not depend on its arguments and is not seen to be zero",
        what, i);

  std::vector<bool> unknown(x.size(), true);
  unknown.resize(program->inputs.size());  // the captures are known
  const Halves halves = split(*program, unknown);
  const Tensors known = internal::apply(*halves.known, closed.captures);
  out.residuals = tail(known, known.size() - halves.residuals);
  out.map = simplify(*halves.unknown);
  out.inputs_move.assign(x.size(), true);
  out.results_move = halves.unknown_outputs;
  for (const Type& type : program->output_types()) out.results.push_back(abstract(type));
  return std::make_shared<const detail::LinearMap>(detail::LinearMap{what, std::move(out)});
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

std::shared_ptr<const detail::LinearMap> detail::linear_transpose(const TensorFunction& f,
                                                                  const Tensors& x) {
  return linear_map("linear_transpose", f, x);
}

}  // namespace postern
