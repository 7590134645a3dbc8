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

  /// Which values of the known half the residuals are: its last outputs.
  std::vector<ValueId> residuals() const {
    const std::vector<ValueId>& outputs = halves.known->outputs;
    return tail(outputs, outputs.size() - halves.residuals);
  }
};

/// Makes known outputs of the halves unknown, those that `unknown` marks, since another branch
/// leaves them unknown. Each becomes one more residual, the last ones, which the unknown half gives
/// as it is.
Halves with_unknown(const Halves& halves, const std::vector<bool>& unknown) {
  Program known = *halves.known;
  known.outputs.clear();
  std::vector<ValueId> added;
  std::size_t next = 0;
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    if (halves.unknown_outputs[i]) continue;
    std::vector<ValueId>& list = unknown[i] ? added : known.outputs;
    list.push_back(halves.known->outputs[next++]);
  }
  known.outputs.insert(known.outputs.end(), nth(halves.known->outputs, next),
                       halves.known->outputs.end());
  known.outputs.insert(known.outputs.end(), added.begin(), added.end());

  Types added_types;
  for (const ValueId v : added) added_types.push_back(known.type(v));
  Types inputs = halves.unknown->input_types();
  inputs.insert(nth(inputs, halves.residuals), added_types.begin(), added_types.end());

  Halves out = halves;
  out.unknown_outputs = unknown;
  out.residuals += added.size();
  out.unknown =
      trace_inner("branch", inputs, [&](TensorSpan in) {
        const Tensors values = internal::apply(
            *halves.unknown, joined({in.first(halves.residuals), in.subspan(out.residuals)}));
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

/// Gives each residual that is no operand a slot of its type, which other branches may fill too:
/// the first that this branch has not taken, else a new one. What may be a handle has a slot to
/// itself: under vmap an element that takes another branch must find the store of zeros there, and
/// not a number of its own branch.
Types assign_slots(std::vector<BranchHalves>& branches) {
  Types slots;
  std::vector<bool> unshared;  // by slot
  for (BranchHalves& b : branches) {
    const Program& known = *b.halves.known;
    const bool offloaded =
        any_equation(known, is_offloaded) || any_equation(*b.halves.unknown, is_offloaded);
    std::vector<bool> taken = unshared;  // by slot
    for (const ValueId v : b.residuals()) {
      b.passed.push_back(-1);
      b.slot.push_back(-1);
      const auto input = std::ranges::find(known.inputs, v);
      if (input != known.inputs.end()) {
        b.passed.back() = static_cast<int>(input - known.inputs.begin());
        continue;
      }

      const Type type{known.type(v).dtype, known.type(v).dims};
      const bool may_be_handle = offloaded && type.dtype == handle_type(type, 0).dtype;
      std::size_t s = may_be_handle ? slots.size() : 0;
      while (s < slots.size() && (taken[s] || !alike(slots[s], type))) ++s;
      if (s == slots.size()) {
        slots.push_back(type);
        taken.push_back(false);
        unshared.push_back(may_be_handle);
      }
      taken[s] = true;
      b.slot.back() = static_cast<int>(s);
    }
  }
  return slots;
}

/// Traces the branches of the known cond, which give the known results, then the slots: zeros in
/// those that the branch does not fill.
std::vector<Closed> known_branches(const std::vector<BranchHalves>& branches, TensorSpan operands,
                                   const Types& slots) {
  std::vector<Closed> out;
  for (const BranchHalves& b : branches)
    out.push_back(trace_inner("branch", types_of(operands), [&](TensorSpan in) {
      Tensors values = internal::apply(*b.halves.known, in);
      const std::size_t results = values.size() - b.halves.residuals;
      Tensors filled(slots.size());
      for (std::size_t r = 0; r < b.slot.size(); ++r)
        if (b.slot[r] >= 0) filled[at(b.slot[r])] = values[results + r];
      values.resize(results);
      for (std::size_t s = 0; s < slots.size(); ++s)
        values.push_back(or_zeros_of(filled[s], slots[s]));
      return values;
    }));
  return out;
}

/// Traces the branches of the unknown cond, for operands of these `types`: first so many known ones
/// and so many slots, of which each takes its residuals, then the unknown ones.
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

ProgramPtr with_wanted_outputs(const Program& program, const std::vector<bool>& wanted) {
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
  std::vector<BranchHalves> branches(p.branches.size());
  std::vector<bool> unknown_results;  // by wanted result
  for (std::size_t b = 0; b < branches.size(); ++b) {
    branches[b].halves = split(*with_wanted_outputs(*p.branches[b], wanted), unknown);
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
  std::size_t next_known = 0, next_wanted = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    if (unknown_results[next_wanted++])
      out.results.push_back(static_cast<int>(i));
    else
      out.known[i] = known[next_known++];
  }

  Types types = types_of(operands);
  append(types, slots);
  append(types, where_marked(p.branches[0]->input_types(), unknown));
  const TensorSpan filled = std::span(known).subspan(next_known);
  for (const Tensor& t : joined({x.first(1), operands, filled})) out.operands.push_back({t});
  for (std::size_t i = 1; i < x.size(); ++i)
    if (!x[i].has_value()) out.operands.push_back({{}, static_cast<int>(i)});
  out.primitive = &cond_p;
  out.params = make_params(unknown_branches(branches, types, operands.size(), slots.size()));
  return out;
}

}  // namespace postern::internal
