// Program: typed values and the equations that make them, in order. What tracing writes,
// transformations rewrite, and lowering reads.
#pragma once
#include <postern/call.h>
#include <postern/place.h>
#include <postern/type.h>

#include "core/params.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace postern::internal {

struct Primitive;
using ValueId = int;
/// Returns it as an index.
constexpr std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

/// `results` values, numbered from `first`, made from `operands` by `primitive`.
struct Equation {
  const Primitive* primitive;
  ParamsPtr params;  // null for none
  std::vector<ValueId> operands;
  ValueId first = 0;
  int results = 1;
  Place place;
};

/// Values are numbered; `types[v]` is v's type. Inputs come first in the numbering; every other
/// value is the result of one equation.
struct Program {
  std::string name;
  std::vector<Type> types;
  std::vector<ValueId> inputs;
  std::vector<Equation> equations;
  std::vector<ValueId> outputs;
  std::size_t captures = 0;  // how many inputs, the last ones, stand for tensors from outside

  const Type& type(ValueId v) const { return types[at(v)]; }
  std::vector<Type> input_types() const;
  std::vector<Type> output_types() const;
};

/// Returns the effect of an equation, that of its sub-programs included, and the strongest of a
/// program.
Effect effect_of(const Equation& equation);
Effect effect_of(const Program& program);

/// Returns whether `test` holds of an equation, or of one in the programs that it holds.
bool any_equation(const Equation& equation, const std::function<bool(const Equation&)>& test);
bool any_equation(const Program& program, const std::function<bool(const Equation&)>& test);

/// Returns whether a call or tap is somewhere in it.
bool has_site(const Equation& equation);
bool has_site(const Program& program);
/// Returns whether it may call back when it is lowered: it has a site, or a block, which may become
/// one.
bool calls_back(const Program& program);

/// Writes one line for each equation: results with types, primitive, parameters, operands, what
/// becomes of it on a platform, place.
std::string to_string(const Program& program, const std::string& platform);

/// Appends the key. Equal keys mean equal programs (host functions are equal to themselves only).
void append_key(std::string& key, const Program& program);

/// Throws TypeError naming equation and rule when a value is used before it is made or a result's
/// type is not what its rule says.
void verify(const Program& program);

}  // namespace postern::internal
