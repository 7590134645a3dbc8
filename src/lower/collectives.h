// Where devices meet: groups of them, and agreeing whether a run goes on.
#pragma once
#include "core/primitive.h"
#include "lower/lowering.h"

namespace postern::internal {

/// Returns whether devices meet in it.
bool is_collective(const Equation& equation);
bool has_collective(const Program& program);
/// Returns the axes along which a collective's devices meet.
AxisList rendezvous_axes(const Equation& equation);

/// Returns "replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, channel_handle = ...", with
/// a channel that nobody else has.
std::string rendezvous_attributes(Lowering& out, const Mesh& mesh, const AxisList& axes);

/// Writes the region of a reduction over devices: `reducer` of two scalars.
void reducing_region(Lowering& out, const char* reducer, const std::string& scalar);

/// Returns the axes of the mesh that is being lowered along which devices meet in these programs,
/// and must not be led apart by a failure. None where no failure leaves zeros, and outside of a
/// mesh, where XLA sees to it.
AxisList axes_met(const Lowering& out, std::span<const ProgramPtr> programs);

/// Asks the run, when `after` is known, whether it goes on, pred[]: one that a failure before has
/// spoilt finds that it does not.
Ssa ask_run(Lowering& out, Lowering::Typed after);
/// Computes whether it is so, pred[], on all devices along these axes.
Ssa everywhere(Lowering& out, Ssa flag, const AxisList& axes);

}  // namespace postern::internal
