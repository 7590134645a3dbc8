// Programs with other equations, in the bodies that equations hold too.
#pragma once
#include <span>
#include <vector>

#include "core/primitive.h"

namespace postern::internal {

/// Returns the equation's parameters with `change(program)` in the place of each program that it
/// holds; its own where nothing changes, and where its primitive takes no others.
template <class Change>
ParamsPtr with_each(const Equation& e, const Change& change) {
  if (!e.params || !e.primitive->with_programs) return e.params;
  const std::vector<ProgramPtr> before = programs_of(*e.params);
  std::vector<ProgramPtr> programs;
  for (const ProgramPtr& p : before) programs.push_back(change(p));
  if (programs == before) return e.params;
  return e.primitive->with_programs(e.params.get(), programs);
}

/// The with_programs of a primitive whose parameters P hold one program, their field `body`.
template <class P>
ParamsPtr body_with_programs(const Params* params, std::span<const ProgramPtr> programs) {
  P p = as<P>(*params);
  p.body = programs[0];
  return make_params(std::move(p));
}

/// Returns the program written anew: `rule(program, equation)` adds to the new one what comes in
/// the equation's place.
template <class Rule>
ProgramPtr rewrite(const Program& from, const Rule& rule) {
  Program to = from;
  to.equations.clear();
  for (const Equation& e : from.equations) rule(to, Equation(e));
  return std::make_shared<const Program>(std::move(to));
}

}  // namespace postern::internal
