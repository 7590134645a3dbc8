// What is known of each value of a program, followed from what is known of its inputs.
//
// `follow` goes through the equations of one program. What an equation gives is its caller's to
// say, and for branches and loops `through` says it: their programs are followed with what they are
// given, branches are joined, and what a loop carries is joined with what its body makes of it
// until nothing changes any more. `through` is told by a lattice, which has
//
//     using Value;                                       // default: nothing is known
//     Values into(const ProgramPtr&, const Values&);     // what a program gives; asked many times
//     bool join(const Equation&, std::size_t i, Value& into, const Value& other);
//                     // the i-th result of branches or leaf of a carry; whether `into` has changed
//     Value number();                                    // of the step's number
//     Value slice(Value, bool offloaded);                // a step's of what a scan goes through
//     Value stacked(Value, bool offloaded);              // the other way
//
// where `offloaded` is said of handles for stores. No value may change by joins for ever.
#pragma once
#include <vector>

#include "analysis/control_flow.h"
#include "core/check.h"
#include "core/lists.h"

namespace postern::internal {

/// Returns what is known of the outputs. `transfer(equation, operands)` gives the results.
template <class Value, class Transfer>
std::vector<Value> follow(const Program& program, const std::vector<Value>& inputs,
                          const Transfer& transfer) {
  std::vector<Value> known(program.types.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) known[at(program.inputs[i])] = inputs[i];
  const auto all = [&](const std::vector<ValueId>& values) {
    std::vector<Value> out;
    for (const ValueId v : values) out.push_back(known[at(v)]);
    return out;
  };
  for (const Equation& e : program.equations) {
    const PlaceScope::Replace here(e.place);
    std::vector<Value> results = transfer(e, all(e.operands));
    std::ranges::move(results, nth(known, at(e.first)));
  }
  return all(program.outputs);
}

/// Branches or a loop in which nothing changes any more.
template <class Value>
struct Flow {
  std::vector<Value> operands;                      // the carry as all steps have it
  std::vector<std::vector<Value>> inputs, outputs;  // by program; outputs are joined already
  std::vector<Value> results;
  std::size_t carries = 0;  // the first results of a loop
};

inline bool branches_or_loops(const Equation& e) {
  return e.primitive->control == ControlFlow::branches || e.primitive->loops();
}

template <class Lattice, class Value = typename Lattice::Value>
Flow<Value> through_branches(const Lattice& lattice, const Equation& e,
                             const std::vector<Value>& operands) {
  Flow<Value> flow{operands, {}, {}, {}};
  for (const ProgramPtr& branch : as<CondParams>(*e.params).branches) {
    flow.inputs.push_back(tail(operands, 1));
    const std::vector<Value> given = lattice.into(branch, flow.inputs.back());
    if (flow.results.empty()) flow.results = given;
    for (std::size_t i = 0; i < given.size(); ++i) lattice.join(e, i, flow.results[i], given[i]);
  }
  flow.outputs.assign(flow.inputs.size(), flow.results);
  return flow;
}

template <class Lattice, class Value = typename Lattice::Value>
Flow<Value> through_loop(const Lattice& lattice, const Equation& e,
                         const std::vector<Value>& operands) {
  const Loop loop = loop_of(e);
  const std::size_t first_carry = loop.first + loop.constants, first_x = first_carry + loop.carries,
                    first_carry_in = loop.constants + loop.counted;  // among the body's inputs
  std::vector<Value> in = between(operands, loop.first, first_x), out;
  if (loop.counted) in.insert(nth(in, loop.constants), lattice.number());
  for (const Value& x : tail(operands, first_x)) in.push_back(lattice.slice(x, loop.offloaded));
  for (bool changed = true; changed;) {
    out = lattice.into(loop.body, in);
    changed = false;
    for (std::size_t i = 0; i < loop.carries; ++i)
      changed |= lattice.join(e, i, in[first_carry_in + i], out[i]);
  }

  // The carry is what it is before and after all steps, joined.
  const std::vector<Value> carry = between(in, first_carry_in, first_carry_in + loop.carries);
  std::ranges::copy(carry, out.begin());
  Flow<Value> flow{operands, {}, {}, carry, loop.carries};
  std::ranges::copy(carry, nth(flow.operands, first_carry));
  if (loop.condition) {
    std::vector<Value> condition_in = head(operands, loop.first);  // its constants
    condition_in.insert(condition_in.end(), carry.begin(), carry.end());
    flow.outputs.push_back(lattice.into(loop.condition, condition_in));
    flow.inputs.push_back(std::move(condition_in));
    if (loop.offloaded) flow.results.emplace_back();  // the number of its steps
  }
  for (const Value& y : tail(out, loop.carries))
    flow.results.push_back(lattice.stacked(y, loop.offloaded));
  flow.inputs.push_back(std::move(in));
  flow.outputs.push_back(std::move(out));
  return flow;
}

/// Follows what the operands of branches or a loop are through the programs that it holds.
template <class Lattice, class Value = typename Lattice::Value>
Flow<Value> through(const Lattice& lattice, const Equation& e, const std::vector<Value>& operands) {
  if (e.primitive->loops()) return through_loop(lattice, e, operands);
  return through_branches(lattice, e, operands);
}

}  // namespace postern::internal
