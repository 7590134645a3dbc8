// trace::non_finite: a tap behind every operation of a program, and of those inside it.
#include <fmt/format.h>
#include <postern/trace.h>

#include "analysis/rewrite.h"
#include "core/check.h"
#include "core/site_spec.h"
#include "print/elements.h"
#include "shard/shard_map.h"
#include "site/site.h"
#include "transform/walk.h"

namespace postern {
using namespace internal;

namespace {

/// Is shown the results of one operation, then its operands, and fails where a result is not finite
/// though they are. Results come first since TapInfo::part is that of the first leaf.
struct FiniteCheck {
  std::size_t results;  // how many leaves are results

  void operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
    bool had_nan = false, had_inf = false;
    for (std::size_t i = results; i < leaves.size(); ++i) {
      const host::NonFinite first = host::non_finite_in(leaves[i], host::mask_of(info, i));
      had_nan |= first.nan >= 0;
      had_inf |= first.inf >= 0;
    }
    // An infinite operand may give nan, as inf - inf does: that is new, and told.
    for (std::size_t i = 0; i < results; ++i) {
      const host::NonFinite first = host::non_finite_in(leaves[i], host::mask_of(info, i));
      if (first.nan >= 0 && !had_nan) fail(info, leaves, i, first.nan, "nan");
      if (first.inf >= 0 && !had_inf && !had_nan) fail(info, leaves, i, first.inf, "infinite");
    }
  }

  [[noreturn]] void fail(const TapInfo& info, std::span<const AnyView> leaves, std::size_t i,
                         std::int64_t element, const char* what) const {
    const std::string index = host::index_text(element, leaves[i].dims());
    Separator comma;
    std::string part;
    for (const IndexRange& range : info.part)
      part += fmt::format("{}{}:{}", comma(), range.begin, range.end);
    if (!part.empty()) part = fmt::format(" (part [{}] of its whole)", part);
    throw std::runtime_error(fmt::format(
        "result{}{} of type {}{} is {}, no operand is", results > 1 ? fmt::format(" {}", i) : "",
        index.empty() ? "" : " at " + index, to_string(leaves[i].type()), part, what));
  }
};

ValueId add_equation(Program& program, const Primitive& primitive, ParamsPtr params,
                     std::vector<ValueId> operands, const Type& type, const Place& place) {
  const auto result = static_cast<ValueId>(program.types.size());
  program.types.push_back(type);
  program.equations.push_back(
      {&primitive, std::move(params), std::move(operands), result, 1, place});
  return result;
}

/// Adds what a collective makes of x - x instead of x: nan where any device's operand is not
/// finite.
ValueId add_operand_of_all(Program& program, const Equation& e) {
  const ValueId x = e.operands[0];
  const Type type = program.type(x);
  const Closed minus = trace_inner(
      "minus", {type, type}, [](std::span<const Tensor> in) { return Tensors{in[0] - in[1]}; });
  const Equation& m = minus.program->equations[0];
  const ValueId zero = add_equation(program, *m.primitive, m.params, {x, x}, type, e.place);
  return add_equation(program, *e.primitive, e.params, {zero}, program.type(e.first), e.place);
}

/// Adds the tap behind `e`, unless there is nothing to see: what has no operands is as it was
/// written, and what shard_map gives is what operations in it gave.
void add_check(Program& program, const Equation& e) {
  const SiteSpec* const called = e.primitive->site ? e.primitive->site(e.params.get()) : nullptr;
  if (e.operands.empty() || (called && called->is_tap())) return;
  if (e.primitive->control == ControlFlow::parts) return;
  std::vector<ValueId> operands = e.operands;
  if (is_collective(e) && is_differentiable(program.type(e.first).dtype))
    operands = {add_operand_of_all(program, e)};
  SiteSpec s;
  Equation tap{&site_p, {}, {}, static_cast<ValueId>(program.types.size()), 0, e.place};
  auto show = [&](ValueId v) {
    const Type type = program.type(v);
    if (!is_differentiable(type.dtype) || type.size() == 0) return;
    tap.operands.push_back(v);
    s.operands.push_back({type.dtype, type.dims});
    program.types.push_back(type);
  };
  for (int i = 0; i < e.results; ++i) show(e.first + i);
  const std::size_t results = s.operands.size();
  if (results == 0) return;
  for (const ValueId v : operands) show(v);
  s.kind = SiteSpec::Kind::operation;
  s.name = called ? called->name : e.primitive->name;
  s.place = e.place;
  s.function = detail::erase(FiniteCheck{results});
  s.trees.operand_paths.resize(s.operands.size());
  s.effect = Effect::ordered;
  tap.params = make_params(SiteParams{std::make_shared<const SiteSpec>(std::move(s))});
  tap.results = static_cast<int>(tap.operands.size());
  program.equations.push_back(std::move(tap));
}

/// Watches programs inside too, where an effect there means that it happens when the program runs.
ProgramPtr watched(const ProgramPtr& program) {
  return rewrite(*program, [](Program& out, Equation e) {
    const bool runs = e.primitive->control != ControlFlow::none || e.primitive->transparent;
    if (runs) e.params = with_each(e, watched);
    out.equations.push_back(e);
    add_check(out, e);
  });
}

}  // namespace

detail::Tensors detail::non_finite(const TensorFunction& f, const Tensors& x, const Place& place) {
  PlaceScope at(place);
  const Closed body = trace_user_inner("non_finite", types_of(x), f);
  return internal::apply(*watched(body.program), joined({body.captures, x}));
}

}  // namespace postern
