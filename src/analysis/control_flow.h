// What branches and loops hold: how their operands go into their programs, and how what these give
// comes out. control/ has their rules.
#pragma once
#include <algorithm>

#include "core/lists.h"
#include "core/primitive.h"

namespace postern::internal {

/// Operands: index (s32, in range), then those of every branch.
struct CondParams {
  std::vector<ProgramPtr> branches;
  auto fields(Fields sink) const {
    return sink.by([&](FieldSink& each) {
      for (const ProgramPtr& b : branches) each("branch", b);
    });
  }
};

/// What a loop keeps on the host for its derivative: see control/residual_store.h.
struct ResidualOptions {
  std::int64_t memory = 0;  // bytes of one execution of the loop, 0: no limit
  std::string file = {};    // where goes what is over it; empty: that is an error
  // Where only every so many steps are kept a store is of those, or of the steps of a segment
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
/// One that is offloaded also gives the number of its steps (s64) and, for each of the body's last
/// outputs, a handle for the store into which every step has put it.
struct WhileParams {
  ProgramPtr condition, body;
  std::size_t condition_constants = 0, body_constants = 0;
  ResidualOptions residuals = {};
  bool offloaded = false;
  bool bounded = false;                // it has as many steps at most as another loop decides
  std::vector<int> handle_ranks = {};  // by offloaded output: how many of its axes its handle has
  FieldChain<8> fields(Fields sink) const;

  std::size_t ys() const { return handle_ranks.size(); }
  std::size_t carries() const { return body->outputs.size() - ys(); }
};

/// Operands: constants, carry, xs. The body takes constants, the step's number if `counted` (start,
/// start + 1, ...), carry, slices of xs; it gives the carry and slices of the stacked results.
///
/// One that is offloaded has as many steps as its first operand says (s64), which comes before the
/// constants. Its xs and stacked results are in stores, of which it is given and gives the handles.
struct ScanParams {
  ProgramPtr body;
  std::int64_t length = 0, start = 0;
  bool reverse = false, counted = false;
  DType index = DType::s32;
  int unroll = 1;
  std::size_t constants = 0, carries = 0;
  ResidualOptions residuals = {};
  bool offloaded = false;
  std::vector<int> handle_ranks = {};  // by stacked result, as in WhileParams
  std::vector<bool> frees = {};        // by x: nobody reads its store after this loop; empty: none
  FieldChain<13> fields(Fields sink) const;

  std::size_t first_carry() const { return constants + counted; }  // among the body's inputs
  std::size_t first_x() const { return first_carry() + carries; }
  /// Return the types of one step's slices of xs, and of the ys that it gives.
  Types x_types() const { return tail(body->input_types(), first_x()); }
  Types y_types() const { return tail(body->output_types(), carries); }
  std::size_t xs() const { return body->inputs.size() - first_x(); }
  std::size_t ys() const { return body->outputs.size() - carries; }
  std::size_t first_operand() const { return offloaded; }  // that the body is given
  /// Returns the slice of xs and stacked results that a step of so many is about.
  std::int64_t slot(std::int64_t step, std::int64_t steps) const {
    return reverse ? steps - 1 - step : step;
  }
};

/// How values go through the body of a loop: operands from `first` on are its constants, the carry
/// and what a scan goes through; the results are the carry and what it stacks.
struct Loop {
  ProgramPtr condition, body;  // a scan has no condition
  std::size_t first, constants, carries;
  bool counted, offloaded;
};
Loop loop_of(const Equation& equation);

}  // namespace postern::internal
