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
#include <postern/host.h>

#include "control/control.h"

namespace postern {

inline Type count_type() { return {DType::s64, {}}; }
Tensor step_number(std::int64_t k);

/// Of tapes on which each step puts a value of this type, of which the first `rank` axes are those
/// of a batch.
Type ticket_type(const Type& step, int rank);
/// Of tapes on which nothing is yet.
Tensors no_tickets(const Types& steps, const std::vector<int>& ranks);

/// Lowers a taped loop as what it expands to.
void lower_taped(Lowering& out, const Equation& e);

/// The loop over tapes: the same in all else, but its steps call the host.
constexpr Primitive taped(Primitive loop, decltype(Primitive::evaluate) evaluate) {
  loop.lower = lower_taped;
  loop.evaluate = evaluate;
  loop.calls = loop.may_call = true;
  return loop;
}

/// The program with its taped loops expanded into while loops with calls. A tape that is made and
/// last read by loops of one program is freed there, others when the run ends.
ProgramPtr with_tapes_expanded(const ProgramPtr& program);

// Calls of the host as equations: site/loop_tape.cc.
/// The steps that a call is about: `count` from `first` on, whose values are in blocks with room
/// for `room` steps. Without a count one step, whose values are as they are.
struct StepsOfCall {
  Tensor first;
  Tensor count = {};
  std::int64_t room = 1;
};
/// That room, of a call with these attributes.
std::int64_t room_for_steps(const Attributes& attributes);
/// The tickets after the steps have put `leaves` on their tapes; a tape is made for a ticket of
/// zero.
Tensors write_tapes(const StepsOfCall& steps, TensorSpan tickets, TensorSpan leaves,
                    const TapeOptions& options);
/// What the steps have put on the tapes, of these types; zeros behind the last.
Tensors read_tapes(const StepsOfCall& steps, TensorSpan tickets, const Types& types,
                   const TapeOptions& options);
/// Frees tapes once `after` is there.
void free_tapes(const Tensor& after, TensorSpan tickets, const TapeOptions& options);

/// Throws TypeError for a site of one of these, from a file, that they cannot have written.
void check_tape_site(const SiteSpec& site);

/// The host's functions behind them, by the names that saved programs know; null for all others.
constexpr const char *tape_write = "postern.tape.write", *tape_read = "postern.tape.read",
                     *tape_free = "postern.tape.free";
std::shared_ptr<const detail::HostFunction> tape_function(std::string_view name);

// The same at once, on concrete tensors: run/loop_tape.cc.
void push_now(std::int64_t k, Tensors& tickets, TensorSpan leaves, const TapeOptions& options);
Tensors read_now(std::int64_t k, TensorSpan tickets, const Types& steps,
                 const TapeOptions& options);
/// What keeps the tapes of a ticket that was made at once; null for all other tensors.
std::shared_ptr<const void> tapes_of(const Tensor& ticket);
/// The tensor, which keeps those tapes.
Tensor keeping_tapes(const Tensor& tickets, std::vector<std::shared_ptr<const void>> tapes);

}  // namespace postern
