// Tracing: while a Trace is current on a thread, operations are written into its program instead of
// being run.
#pragma once
#include "core/primitive.h"
#include "core/scoped.h"
#include "core/value.h"

#include <functional>
#include <memory>
#include <unordered_map>

namespace postern::internal {

/// A program and the tensors from outside that it uses: `captures` are the values of its last
/// inputs.
struct Closed {
  std::shared_ptr<const Program> program;
  Tensors captures;
};

class Trace : Scoped<Trace*> {
 public:
  /// Becomes the thread's current trace until it is destroyed. `what` names it in errors.
  explicit Trace(std::string what);
  ~Trace();
  static Trace* current();
  Trace* outer() const { return before(); }
  const detail::TraceMark* mark() const { return mark_.get(); }

  /// Returns where a value was waited for here; an unknown place for one that was not.
  Place& waited(const Tensor& value) {
    kept_.push_back(value);  // so that its address is not another's
    return waited_[detail::Access::value(value)];
  }

  Tensor input(const Type& type);
  Tensors record(const Primitive& primitive, ParamsPtr params, TensorSpan operands);

  /// Ends the trace. Values that no output needs are left in.
  Closed finish(TensorSpan outputs);

 private:
  ValueId id_of(const Tensor& tensor);
  ValueId add_value(Type type);
  Tensor traced(ValueId id);

  std::shared_ptr<detail::TraceMark> mark_;
  Program program_;
  Tensors captures_;
  std::vector<ValueId> capture_ids_;
  std::unordered_map<const detail::Value*, ValueId> known_;  // captured values and literals
  std::unordered_map<const detail::Value*, Place> waited_;
  Tensors kept_;  // what these point at
};

/// Lets the thread run operations at once, as outside of all traces, until it is destroyed.
class Untraced : Scoped<Trace*> {
 public:
  Untraced();
};

/// Records in the current trace, or runs at once when there is none.
Tensors bind_n(const Primitive& primitive, ParamsPtr params, TensorSpan operands);
Tensor bind1(const Primitive& primitive, ParamsPtr params, TensorSpan operands);
inline Tensor bind1(const Primitive& primitive, ParamsPtr params,
                    std::initializer_list<Tensor> operands) {
  return bind1(primitive, std::move(params), std::span(operands.begin(), operands.size()));
}

/// Traces the program of `f` for arguments of these types.
Closed trace_program(std::string what, std::span<const Type> types, const TensorFunction& f);

/// Writes the equations of `program` into the current trace (or runs them) with `inputs` for its
/// inputs, and returns its outputs.
Tensors apply(const Program& program, TensorSpan inputs);

/// What runs programs outside of any trace. Rooms further down can: `src/wiring.cc` names them.
struct Evaluator {
  /// Runs one equation on concrete tensors.
  Tensors (*equation)(const Primitive&, const ParamsPtr&, TensorSpan operands);
  /// Runs a program inside an equation that the host drives, such as the body of a loop: equation
  /// by equation, or staged as the whole is.
  Tensors (*program)(const ProgramPtr&, TensorSpan inputs);
};
extern const Evaluator evaluator;

}  // namespace postern::internal
