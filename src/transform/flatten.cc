// Equations that mean their program give way to its equations, inner ones too.
#include "transform/flatten.h"

#include "core/primitive.h"
#include "transform/walk.h"

namespace postern::internal {

namespace {

using Which = std::function<bool(const Equation&)>;

/// Appends the equations of `from` to `to`, where its inputs are the values `inputs`; returns which
/// values its outputs are there.
std::vector<ValueId> append_equations(const Program& from, const std::vector<ValueId>& inputs,
                                      const Which& which, Program& to) {
  std::vector<ValueId> renamed(from.types.size(), -1);
  auto map = [&](const std::vector<ValueId>& values) {
    std::vector<ValueId> out;
    for (const ValueId v : values) out.push_back(renamed[at(v)]);
    return out;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) renamed[at(from.inputs[i])] = inputs[i];
  for (const Equation& e : from.equations) {
    if (which(e)) {
      const std::vector<ValueId> results =
          append_equations(*programs_of(*e.params)[0], map(e.operands), which, to);
      for (int r = 0; r < e.results; ++r) renamed[at(e.first + r)] = results[at(r)];
      continue;
    }
    Equation copy = e;
    copy.operands = map(e.operands);
    copy.first = static_cast<ValueId>(to.types.size());
    for (int r = 0; r < e.results; ++r) {
      renamed[at(e.first + r)] = copy.first + r;
      to.types.push_back(from.type(e.first + r));
    }
    to.equations.push_back(std::move(copy));
  }
  return map(from.outputs);
}

}  // namespace

Program flattened(const Program& program, const Which& which) {
  Program out;
  out.name = program.name;
  for (const ValueId v : program.inputs) {
    out.inputs.push_back(static_cast<ValueId>(out.types.size()));
    out.types.push_back(program.type(v));
  }
  out.outputs = append_equations(program, out.inputs, which, out);
  return out;
}

}  // namespace postern::internal
