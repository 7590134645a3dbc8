// trace::non_finite: a tap behind every operation of a program, and of those inside it.
#include <fmt/format.h>
#include <postern/listen.h>

#include "core/site.h"
#include "host/listen_summary.h"
#include "ops/control.h"
#include "ops/site.h"

namespace postern {

namespace {

/// Is shown the operands, then the results, of one operation.
struct FiniteCheck {
  std::size_t operands;

  void operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
    bool had_nan = false, had_inf = false;
    for (const AnyView& v : leaves.first(operands)) {
      const host::NonFinite in = host::non_finite_in(v, info.mask);
      had_nan |= in.nan >= 0, had_inf |= in.inf >= 0;
    }
    for (std::size_t i = operands; i < leaves.size(); ++i) {
      const host::NonFinite out = host::non_finite_in(leaves[i], info.mask);
      if (out.nan >= 0 && !had_nan) fail(leaves, i, out.nan, "nan");
      if (out.inf >= 0 && !had_inf && !had_nan) fail(leaves, i, out.inf, "infinite");
    }
  }

  [[noreturn]] void fail(std::span<const AnyView> leaves, std::size_t i, std::int64_t at, const char* what) const {
    const std::string index = host::index_text(at, leaves[i].dims());
    throw std::runtime_error(fmt::format("result{}{} of type {} is {}, no operand is",
                                         leaves.size() - operands > 1 ? fmt::format(" {}", i - operands) : "",
                                         index.empty() ? "" : " at " + index, to_string(leaves[i].type()), what));
  }
};

/// Adds the tap behind `e`, unless there is nothing to see: what has no operands is as it was written.
void add_check(Program& program, const Equation& e) {
  const SiteSpec* const called = e.primitive->site ? e.primitive->site(e.params.get()) : nullptr;
  if (e.operands.empty() || (called && called->kind == SiteSpec::Kind::tap)) return;
  SiteSpec s;
  Equation tap{&site_p, {}, {}, static_cast<ValueId>(program.types.size()), 0, e.place};
  auto show = [&](ValueId v) {
    const Type type = program.type(v);
    if (!is_differentiable(type.dtype) || type.size() == 0) return;
    tap.operands.push_back(v);
    s.operands.push_back({type.dtype, type.dims});
    program.types.push_back(type);
  };
  for (const ValueId v : e.operands) show(v);
  const std::size_t operands = s.operands.size();
  for (int i = 0; i < e.results; ++i) show(e.first + i);
  if (s.operands.size() == operands) return;
  s.kind = SiteSpec::Kind::tap;
  s.word = "operation";
  s.name = called ? called->name : e.primitive->name;
  s.place = e.place;
  s.function = detail::erase(FiniteCheck{operands});
  s.operand_paths.resize(s.operands.size());
  s.effect = Effect::ordered;
  tap.params = make_params(SiteParams{std::make_shared<const SiteSpec>(std::move(s))});
  tap.results = static_cast<int>(tap.operands.size());
  program.equations.push_back(std::move(tap));
}

ProgramPtr watched(const Program& program);

/// The parameters with watched programs, where an effect inside means that it happens when the program runs.
ParamsPtr watched(const Equation& e) {
  const bool loop = e.primitive == &while_p;
  if (!loop && e.primitive != &scan_p && e.primitive != &cond_p && !e.primitive->transparent) return e.params;
  std::vector<ProgramPtr> programs = programs_of(*e.params);
  for (std::size_t i = loop ? 1 : 0; i < programs.size(); ++i) programs[i] = watched(*programs[i]);  // not a loop's condition
  return e.primitive->with_programs(e.params.get(), programs);
}

ProgramPtr watched(const Program& program) {
  Program out = program;
  out.equations.clear();
  for (const Equation& e : program.equations) {
    out.equations.push_back(e);
    out.equations.back().params = watched(e);
    add_check(out, e);
  }
  return std::make_shared<const Program>(std::move(out));
}

}  // namespace

detail::Leaves detail::non_finite(const TensorFunction& f, const Leaves& x, const Place& place) {
  PlaceScope at(place);
  const Closed body = trace_user_inner("non_finite", types_of(x), f);
  Tensors operands = body.captures;
  append(operands, x);
  return postern::apply(*watched(*body.program), operands);
}

}  // namespace postern
