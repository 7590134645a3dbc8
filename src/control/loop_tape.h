// The tapes of loops. A loop whose number of steps nobody knows beforehand cannot stack what its
// derivative needs of each step into an array: each step puts it on a tape on the host instead.
//
// To a program a tape is an array of unknown length, a value like others, and the ticket that
// stands for it is an f64. That has a tangent, the ticket of the tangents' tape; a number would
// have none. Zero is the tape that holds only zeros. A taped while gives tapes, a taped scan reads
// and gives them; so the rules of scan hold, which need not know how long it is. What their steps
// do to tapes is written when they are lowered: a taped loop becomes a while with calls of the host
// (host/loop_tape), and when one is evaluated its tapes belong to the tickets' tensors.
//
// Under vmap a ticket has the axes of the batch, and each element a tape of its own.
#pragma once
#include "control/control.h"

namespace postern::internal {

inline Type count_type() { return {DType::s64, {}}; }
Tensor step_number(std::int64_t k);

/// Returns the type of tickets of tapes on which each step puts a value of this type, of which the
/// first `rank` axes are those of a batch.
Type ticket_type(const Type& step, int rank);
/// Makes the tickets of tapes on which nothing is yet.
Tensors no_tickets(const Types& steps, const std::vector<int>& ranks);

/// Lowers a taped loop as what it expands to.
void lower_taped(Lowering& out, const Equation& e);

/// Returns the loop over tapes: the same in all else, but its steps call the host.
constexpr Primitive taped(Primitive loop, decltype(Primitive::evaluate) evaluate) {
  loop.lower = lower_taped;
  loop.evaluate = evaluate;
  loop.calls = loop.may_call = true;
  return loop;
}

/// Returns whether it is a loop that writes or reads tapes.
inline bool is_taped(const Equation& e) { return e.primitive->loops() && e.primitive->calls; }

/// Returns the program with its taped loops expanded into while loops with calls. A tape that is
/// made and last read by loops of one program is freed there, others when the run ends.
ProgramPtr with_tapes_expanded(const ProgramPtr& program);

/// The steps that a call is about: `count` from `first` on, whose values are in blocks with room
/// for `room` steps. Without a count one step, whose values are as they are.
struct StepsOfCall {
  Tensor first;
  Tensor count = {};
  std::int64_t room = 1;
};

/// What puts values on tapes and takes them back. Rooms further down can: `src/wiring.cc` names
/// them.
struct LoopTapeAccess {
  // Calls of the host as equations.
  /// The tickets after the steps have put `leaves` on their tapes; a tape is made for a ticket of
  /// zero.
  Tensors (*write)(const StepsOfCall& steps, TensorSpan tickets, TensorSpan leaves,
                   const LoopTapeOptions& options);
  /// What the steps have put on the tapes, of these types; zeros behind the last.
  Tensors (*read)(const StepsOfCall& steps, TensorSpan tickets, const Types& types,
                  const LoopTapeOptions& options);
  /// Frees tapes once `after` is there.
  void (*free)(const Tensor& after, TensorSpan tickets, const LoopTapeOptions& options);

  // The same at once, on concrete tensors.
  void (*write_now)(std::int64_t k, Tensors& tickets, TensorSpan leaves,
                    const LoopTapeOptions& options);
  Tensors (*read_now)(std::int64_t k, TensorSpan tickets, const Types& steps);
  /// What keeps the tapes of a ticket that was made at once; null for all other tensors.
  std::shared_ptr<const void> (*of)(const Tensor& ticket);
  /// Has a tensor that was made of tickets keep their tapes, those whose tickets are in it.
  void (*keep)(Tensor& tickets);
};
extern const LoopTapeAccess loop_tape_access;

}  // namespace postern::internal
