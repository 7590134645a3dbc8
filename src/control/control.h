// Control flow as equations that hold programs. A body's captured tensors are operands of the
// equation, and so inputs of the body.
#pragma once
#include "ops/family.h"
#include "transform/alive.h"
#include "transform/batch.h"
#include "transform/jvp.h"
#include "transform/walk.h"

namespace postern::internal {

/// Returns those that `mask` marks, zeros where there are none.
inline Tensors or_zeros_like(TensorSpan tensors, const std::vector<bool>& mask,
                             const Types& types) {
  Tensors out;
  for (std::size_t i = 0; i < mask.size(); ++i)
    if (mask[i]) out.push_back(or_zeros_of(tensors[i], types[i]));
  return out;
}

/// Operands: index (s32, in range), then those of every branch.
struct CondParams {
  std::vector<ProgramPtr> branches;
  auto fields(Fields sink) const {
    return sink.by([&](FieldSink& each) {
      for (const ProgramPtr& b : branches) each("branch", b);
    });
  }
};

/// What a loop keeps on the host for its derivative: see control/loop_tape.h.
struct LoopTapeOptions {
  std::int64_t memory = 0;  // bytes of one execution of the loop, 0: no limit
  std::string file = {};    // where goes what is over it; empty: that is an error
  // Where only every so many steps are kept a tape is of those, or of the steps of a segment
  // between them. Either has half of the memory.
  std::int64_t keep_every = 1;
  bool of_segment = false;
  auto fields(Fields sink) const {
    return sink.when(memory != 0, "memory", memory)
        .when(!file.empty(), "file", file)
        .when(keep_every != 1, "keep_every", keep_every)
        .when(of_segment, "of_segment", of_segment);
  }
  std::int64_t share() const {
    if (memory == 0 || (keep_every == 1 && !of_segment)) return memory;
    return std::max<std::int64_t>(memory / 2, 1);
  }
};

/// Operands: constants of the condition, constants of the body, carry. Condition and body take
/// their constants, then the carry.
///
/// One that is taped also gives the number of its steps (s64) and, for each of the body's last
/// outputs, a ticket for the tape on which every step has put it.
struct WhileParams {
  ProgramPtr condition, body;
  std::size_t condition_constants = 0, body_constants = 0;
  LoopTapeOptions tape = {};
  bool taped = false;
  bool bounded = false;                // it has as many steps at most as another loop decides
  std::vector<int> ticket_ranks = {};  // by taped output: how many of its axes its ticket has
  FieldChain<8> fields(Fields sink) const;

  std::size_t ys() const { return ticket_ranks.size(); }
  std::size_t carries() const { return body->outputs.size() - ys(); }
};

/// Operands: constants, carry, xs. The body takes constants, the step's number if `counted` (start,
/// start + 1, ...), carry, slices of xs; it gives the carry and slices of the stacked results.
///
/// One that is taped has as many steps as its first operand says (s64), which comes before the
/// constants. Its xs and stacked results are on tapes, of which it is given and gives the tickets.
struct ScanParams {
  ProgramPtr body;
  std::int64_t length = 0, start = 0;
  bool reverse = false, counted = false;
  DType index = DType::s32;
  int unroll = 1;
  std::size_t constants = 0, carries = 0;
  LoopTapeOptions tape = {};
  bool taped = false;
  std::vector<int> ticket_ranks = {};  // by stacked result, as in WhileParams
  std::vector<bool> frees = {};        // by x: nobody reads its tape after this loop; empty: none
  FieldChain<13> fields(Fields sink) const;

  std::size_t first_carry() const { return constants + counted; }  // among the body's inputs
  std::size_t first_x() const { return first_carry() + carries; }
  std::size_t xs() const { return body->inputs.size() - first_x(); }
  std::size_t ys() const { return body->outputs.size() - carries; }
  std::size_t first_operand() const { return taped; }  // that the body is given
  /// Returns the slice of xs and stacked results that a step of so many is about.
  std::int64_t slot(std::int64_t step, std::int64_t steps) const {
    if (reverse) return steps - 1 - step;
    return step;
  }
};

extern const Primitive cond_p, while_p, scan_p, taped_while_p, taped_scan_p;

inline const Primitive& scan_primitive(bool taped) {
  if (taped) return taped_scan_p;
  return scan_p;
}

/// Brings programs that captured different tensors to the same inputs: all captures, then their
/// own. Gives the captures.
Tensors join_captures(std::vector<Closed>& programs);

/// Returns the types of both, one after the other.
inline Types joined_types(TensorSpan a, TensorSpan b) {
  Types out = types_of(a);
  append(out, types_of(b));
  return out;
}

/// Returns the type with an axis of that extent in front, and of one slice along the first axis.
Type stacked_type(const Type& type, std::int64_t length);
Type slice_type_of(const Type& type);

/// Refuses a carry that the body gives back with other types; weak ones adopt the body's dtype:
/// then true, and `carry` has changed.
bool settle_carry(const char* what, Tensors& carry, const Types& body_gives,
                  const std::vector<std::string>& paths);

/// Selects `x` where `mask` (one pred for each element of the batch, which is x's first axis), else
/// `y`.
Tensor select_elements(const Tensor& mask, const Tensor& x, const Tensor& y);

/// Writes a `case`: `branch(b)` writes the b-th region and gives its values, which have these
/// types. The tokens of ordered effects go through.
std::vector<Ssa> write_case(Lowering& out, Ssa index, std::size_t branches, const Types& types,
                            bool ordered,
                            const std::function<std::vector<Ssa>(std::size_t)>& branch);

}  // namespace postern::internal
