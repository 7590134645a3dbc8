// Residual stores. A loop whose number of steps nobody knows beforehand cannot stack what its
// derivative needs of each step into an array: each step puts it in a store on the host instead.
//
// To a program a store is an array of unknown length, a value like others, and the handle that
// stands for it is an f64. That has a tangent, the handle of the tangents' store; a number would
// have none. Zero is the store that holds only zeros. An offloaded while gives stores, an offloaded
// scan reads and gives them; so the rules of scan hold, which need not know how long it is. What
// steps do to stores is written when they are lowered: the loop becomes a while with calls of the
// host (host/residual_store). Where one is evaluated its stores belong to the handles' tensors.
//
// Under vmap a handle has the axes of the batch, and each element a store of its own.
#pragma once
#include "control/control.h"

namespace postern::internal {

inline Type count_type() { return {DType::s64, {}}; }
inline Tensor step_number(std::int64_t k) { return integer_of(k, count_type().dtype); }

/// Returns the type of handles of stores into which each step puts a value of this type, of which
/// the first `rank` axes are those of a batch.
Type handle_type(const Type& step, int rank);
/// Makes the handles of stores in which nothing is yet.
Tensors no_handles(const Types& steps, const std::vector<int>& ranks);

/// Lowers an offloaded loop as what it expands to.
void lower_offloaded(Lowering& out, const Equation& e);

/// Returns the loop over stores: the same in all else, but its steps call the host.
constexpr Primitive offloaded(Primitive loop, decltype(Primitive::evaluate) evaluate) {
  loop.lower = lower_offloaded;
  loop.evaluate = evaluate;
  loop.calls = loop.may_call = true;
  return loop;
}

/// Returns whether it is a loop that writes or reads stores.
inline bool is_offloaded(const Equation& e) { return e.primitive->loops() && e.primitive->calls; }

/// Returns the program with its offloaded loops expanded into while loops with calls. A store that
/// is made and last read by loops of one program is freed there, others when the run ends.
ProgramPtr with_offloaded_expanded(const ProgramPtr& program);

/// The steps that a call is about: `count` from `first` on, whose values are in blocks with room
/// for `room` steps. Without a count one step, whose values are as they are.
struct StepsOfCall {
  Tensor first;
  Tensor count = {};
  std::int64_t room = 1;
};

/// What puts values in stores and takes them back. Later rooms can: see `src/wiring.cc`.
struct ResidualAccess {
  // Calls of the host as equations.
  /// The handles after the steps have put `leaves` in their stores; zero gets a new store.
  Tensors (*write)(const StepsOfCall& steps, TensorSpan handles, TensorSpan leaves,
                   const ResidualOptions& options);
  /// What the steps have put in the stores, of these types; zeros behind the last.
  Tensors (*read)(const StepsOfCall& steps, TensorSpan handles, const Types& types,
                  const ResidualOptions& options);
  /// Frees stores once `after` is there.
  void (*free)(const Tensor& after, TensorSpan handles, const ResidualOptions& options);

  // The same at once, on concrete tensors.
  void (*write_now)(std::int64_t k, Tensors& handles, TensorSpan leaves,
                    const ResidualOptions& options);
  Tensors (*read_now)(std::int64_t k, TensorSpan handles, const Types& steps);
  /// What keeps the stores or calls of a handle that was made at once; null for other tensors.
  std::shared_ptr<const void> (*of)(const Tensor& handle);
  /// Has a tensor that was made of handles keep what is behind those that are in it.
  void (*keep)(Tensor& handles);
};
extern const ResidualAccess residual_access;

}  // namespace postern::internal
