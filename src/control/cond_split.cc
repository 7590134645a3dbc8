// The split of a cond: residuals of a branch are operands that it passes on, or slots; branches
// share slots of one type.
#include "control/cond.h"
#include "control/residual_store.h"
#include "core/lists.h"
#include "transform/simplify.h"

namespace postern::internal {

namespace {

struct BranchHalves {
  Halves halves;
  std::vector<int> passed, slot;  // by residual: which known operand it is, or its slot; else -1
};

/// The halves with these outputs unknown: what was known of them is a residual.
Halves with_unknown(const Halves& halves, const std::vector<bool>& unknown) {
  const Program& of = *halves.known;
  std::vector<ValueId> stay, more;
  for (std::size_t i = 0, next = 0; i < unknown.size(); ++i)
    if (!halves.unknown_outputs[i]) (unknown[i] ? more : stay).push_back(of.outputs[next++]);
  Program known = of;
  known.outputs = stay;
  known.outputs.insert(known.outputs.end(), nth(of.outputs, of.outputs.size() - halves.residuals),
                       of.outputs.end());
  known.outputs.insert(known.outputs.end(), more.begin(), more.end());
  Types inputs;
  for (const ValueId v : halves.unknown->inputs) inputs.push_back(halves.unknown->type(v));
  Types passed;
  for (const ValueId v : more) passed.push_back(of.type(v));
  inputs.insert(nth(inputs, halves.residuals), passed.begin(), passed.end());
  Halves out = halves;
  out.unknown_outputs = unknown;
  out.residuals += more.size();
  out.unknown =
      trace_inner("branch", inputs, [&](TensorSpan in) {
        Tensors own(in.begin(), nth(in, halves.residuals));
        append(own, in.subspan(out.residuals));
        const Tensors values = internal::apply(*halves.unknown, own);
        Tensors results;
        std::size_t value = 0, residual = halves.residuals;
        for (std::size_t i = 0; i < unknown.size(); ++i)
          if (unknown[i])
            results.push_back(halves.unknown_outputs[i] ? values[value++] : in[residual++]);
        return results;
      }).program;
  out.known = std::make_shared<const Program>(std::move(known));
  return out;
}

/// Slots for the residuals of all branches. What may be a handle has one that no other branch
/// fills: under vmap an element that takes another has the store of zeros there, not a number of
/// its own branch.
Types assign_slots(std::vector<BranchHalves>& branches) {
  Types slots;
  std::vector<bool> alone;  // by slot
  for (BranchHalves& b : branches) {
    const Program& known = *b.halves.known;
    const std::size_t outputs = known.outputs.size() - b.halves.residuals;
    const bool offloaded =
        any_equation(known, is_offloaded) || any_equation(*b.halves.unknown, is_offloaded);
    std::vector<bool> taken = alone;
    for (std::size_t r = 0; r < b.halves.residuals; ++r) {
      const ValueId v = known.outputs[outputs + r];
      const auto input = std::ranges::find(known.inputs, v);
      int passed = -1;
      if (input != known.inputs.end()) passed = static_cast<int>(input - known.inputs.begin());
      b.passed.push_back(passed);
      b.slot.push_back(-1);
      if (b.passed.back() >= 0) continue;
      const DType dtype = known.type(v).dtype;
      const bool may_be_handle = offloaded && dtype == handle_type(known.type(v), 0).dtype;
      std::size_t s = 0;
      if (may_be_handle) s = slots.size();
      while (s < slots.size() &&
             (taken[s] || slots[s].dtype != dtype || slots[s].dims != known.type(v).dims))
        ++s;
      if (s == slots.size()) {
        slots.push_back({dtype, known.type(v).dims});
        taken.push_back(false);
        alone.push_back(may_be_handle);
      }
      taken[s] = true;
      b.slot.back() = static_cast<int>(s);
    }
  }
  return slots;
}

/// Branches of the known half: known results, then the slots.
std::vector<Closed> known_branches(const std::vector<BranchHalves>& branches, TensorSpan operands,
                                   const Types& slots) {
  std::vector<Closed> out;
  for (const BranchHalves& b : branches)
    out.push_back(trace_inner("branch", types_of(operands), [&](TensorSpan in) {
      Tensors values = internal::apply(*b.halves.known, in);
      const std::size_t outputs = values.size() - b.halves.residuals;
      Tensors filled(slots.size());
      for (std::size_t r = 0; r < b.slot.size(); ++r)
        if (b.slot[r] >= 0) filled[at(b.slot[r])] = values[outputs + r];
      values.resize(outputs);
      for (std::size_t s = 0; s < slots.size(); ++s)
        values.push_back(or_zeros_of(filled[s], slots[s]));
      return values;
    }));
  return out;
}

/// Branches of the unknown half: known operands, slots, unknown operands.
CondParams unknown_branches(const std::vector<BranchHalves>& branches, const Types& types,
                            std::size_t known, std::size_t slots) {
  CondParams p;
  for (const BranchHalves& b : branches)
    p.branches.push_back(trace_inner("branch", types, [&](TensorSpan in) {
                           Tensors inputs;
                           for (std::size_t r = 0; r < b.slot.size(); ++r) {
                             if (b.slot[r] >= 0)
                               inputs.push_back(in[known + at(b.slot[r])]);
                             else
                               inputs.push_back(in[at(b.passed[r])]);
                           }
                           append(inputs, in.subspan(known + slots));
                           return internal::apply(*b.halves.unknown, inputs);
                         }).program);
  return p;
}

ProgramPtr with_outputs(const Program& program, const std::vector<bool>& wanted) {
  Program out = program;
  out.outputs = where_marked(program.outputs, wanted);
  return simplify(out);
}

}  // namespace

// Given the operands, of which those that are unknown are empty, and which results are wanted. The
// index is known: it has no tangent.
//
// 1. Splits each branch. A result that one branch leaves unknown is unknown in all.
// 2. Gives residuals that are no operands slots by type. A branch fills its own; the others are
//    zero, since a cond has the same results whichever branch is taken.
// 3. Binds a cond of the known halves, which gives the known results and the slots.
// 4. Returns a cond of the unknown halves, of the same index, the known operands, the slots and the
//    unknown operands. It is not bound yet.
Primitive::SplitResult cond_split(const Op& op, TensorSpan x, const std::vector<bool>& wanted) {
  const auto& p = op.as<CondParams>();
  check(x[0].has_value(), "cond: the index depends on a tangent");
  const std::vector<bool> unknown = missing(x.subspan(1));
  const std::size_t results = count(wanted);
  std::vector<BranchHalves> branches(p.branches.size());
  std::vector<bool> unknown_results(results);
  for (std::size_t b = 0; b < branches.size(); ++b) {
    branches[b].halves = split(*with_outputs(*p.branches[b], wanted), unknown);
    join(unknown_results, branches[b].halves.unknown_outputs);
  }
  for (BranchHalves& b : branches)
    if (b.halves.unknown_outputs != unknown_results)
      b.halves = with_unknown(b.halves, unknown_results);
  const Types slots = assign_slots(branches);
  const Tensors operands = kept(x.subspan(1));
  const Tensors known = bind_cond(x[0], known_branches(branches, operands, slots), operands);

  Primitive::SplitResult out;
  out.known.resize(wanted.size());
  std::size_t next = 0, result = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    if (unknown_results[result++])
      out.results.push_back(static_cast<int>(i));
    else
      out.known[i] = known[next++];
  }
  Types types = types_of(operands);
  append(types, slots);
  out.operands.push_back({x[0], -1});
  for (const Tensor& t : operands) out.operands.push_back({t, -1});
  for (std::size_t s = 0; s < slots.size(); ++s) out.operands.push_back({known[next + s], -1});
  for (std::size_t i = 1; i < x.size(); ++i) {
    if (x[i].has_value()) continue;
    out.operands.push_back({{}, static_cast<int>(i)});
    types.push_back(p.branches[0]->type(p.branches[0]->inputs[i - 1]));
  }
  out.primitive = &cond_p;
  out.params = make_params(unknown_branches(branches, types, operands.size(), slots.size()));
  return out;
}

}  // namespace postern::internal
