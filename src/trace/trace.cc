// Writing operations down, and replaying a program into another.
//
// While a Trace is there, operations on this thread are written into its program, and a traced
// tensor is no more than a number in it. A tensor from outside is captured when it is first used: a
// number is written into the program, anything else becomes an input more, whose value goes with
// the program. Whoever uses a traced tensor where its trace cannot see it is told which trace that
// was.
#include "trace/trace.h"

#include <postern/detail/small_vector.h>

#include "core/check.h"
#include "core/mutex.h"
#include "core/result_types.h"
#include "trace/literal.h"
#include "trace/steps.h"

#include <utility>

namespace postern::internal {

using detail::Access;
using detail::TracedValue;
using detail::Value;

namespace {
thread_local Trace* current_trace = nullptr;
thread_local int traces = 0;  // in one another
thread_local std::atomic<std::uint64_t> steps_taken{0};
constexpr int most_traces = 500;  // so that neither our rules nor XLA run out of stack
}  // namespace

Trace* Trace::current() { return current_trace; }
const std::atomic<std::uint64_t>& traced_steps() { return steps_taken; }

Trace::Trace(std::string what)
    : Scoped(current_trace, this), mark_(std::make_shared<detail::TraceMark>()) {
  if (traces == most_traces)
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("{}: branches, loops and functions may be nested {} levels deep", what,
                            most_traces));
  ++traces;
  mark_->what = what;
  program_.name = std::move(what);
}

Trace::~Trace() {
  mark_->open = false;
  current_trace = before();  // what users own goes with the members, behind it
  --traces;
}

Untraced::Untraced() : Scoped(current_trace, nullptr) {}

ValueId Trace::add_value(Type type) {
  program_.types.push_back(std::move(type));
  return static_cast<ValueId>(program_.types.size()) - 1;
}

Tensor Trace::traced(ValueId id) {
  return Access::make(
      std::make_shared<TracedValue>(program_.type(id), mark_, id, PlaceScope::current()));
}

Tensor Trace::input(const Type& type) {
  const ValueId id = add_value(type);
  program_.inputs.push_back(id);
  return traced(id);
}

/// Returns the tensor's number in this program, which captures one from around this trace.
ValueId Trace::id_of(const Tensor& tensor) {
  const Value* value = Access::value(tensor);
  check(value != nullptr, "an operand is an empty Tensor, one that was never given a value");
  check(value->kind != Value::Kind::abstract,
        "an operand of type {} is abstract: it has a type but no value", to_string(value->type));
  if (const TracedValue* t = Access::traced(tensor)) {
    if (t->mark == mark_) return t->index;
    check(t->mark->open, "a traced tensor of type {}{} is used after its trace ({}) has ended",
          to_string(t->type), origin_of(*t), t->mark->what);
    check(t->mark->thread == std::this_thread::get_id(),
          "a traced tensor of type {}{} is used on another thread than the one that traces it ({})",
          to_string(t->type), origin_of(*t), t->mark->what);
  }
  if (const auto found = known_.find(value); found != known_.end()) return found->second;
  ValueId id;
  if (const detail::HostValue* host = host_scalar(tensor)) {  // is written into the program
    detail::refuse_donated(*host);
    id = id_of(full_of(read_number(host->type.dtype, host->data.get()), host->type));
  } else {
    id = add_value(value->type);
    capture_ids_.push_back(id);
    captures_.push_back(tensor);
  }
  // Kept alive so that the pointer is not met again as another value.
  known_.emplace(value, id);
  kept_.push_back(tensor);
  return id;
}

Tensors Trace::record(const Primitive& primitive, ParamsPtr params, TensorSpan operands) {
  steps_taken.fetch_add(1, std::memory_order_relaxed);
  Equation e{&primitive, std::move(params), {}, 0, 0, PlaceScope::current()};
  e.operands.reserve(operands.size());
  for (const Tensor& t : operands) e.operands.push_back(id_of(t));
  detail::SmallVector<const Type*, 8> types(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) types[i] = &program_.type(e.operands[i]);
  Types results = result_types(primitive, e.params.get(), {types.data(), types.size()});
  e.first = static_cast<ValueId>(program_.types.size());
  e.results = static_cast<int>(results.size());
  Tensors out;
  out.reserve(results.size());
  for (Type& type : results) out.push_back(traced(add_value(std::move(type))));
  program_.equations.push_back(std::move(e));
  return out;
}

Closed Trace::finish(TensorSpan outputs) {
  for (const Tensor& t : outputs) program_.outputs.push_back(id_of(t));
  program_.inputs.insert(program_.inputs.end(), capture_ids_.begin(), capture_ids_.end());
  mark_->open = false;
  return {std::make_shared<const Program>(std::move(program_)), std::move(captures_)};
}

Tensors bind_n(const Primitive& primitive, ParamsPtr params, TensorSpan operands) {
  if (Trace* trace = Trace::current()) return trace->record(primitive, std::move(params), operands);
  for (const Tensor& t : operands) {
    check(t.has_value(), "{}: an operand is an empty Tensor, one that was never given a value",
          primitive.name);
    check(!t.is_traced(),
          "{}: an operand of type {} is traced or abstract, but nothing is being traced here",
          primitive.name, to_string(t.type()));
  }
  return evaluator.equation(primitive, params, operands);
}

Tensor bind1(const Primitive& primitive, ParamsPtr params, TensorSpan operands) {
  return std::move(bind_n(primitive, std::move(params), operands).front());
}

Closed trace_program(std::string what, std::span<const Type> types, const TensorFunction& f) {
  Trace scope(std::move(what));
  Tensors inputs;
  inputs.reserve(types.size());
  for (const Type& t : types) inputs.push_back(scope.input(t));
  enters_users_code();
  return scope.finish(f(inputs));
}

Tensors apply(const Program& program, TensorSpan inputs) {
  check(inputs.size() == program.inputs.size(), "program '{}' takes {} inputs, got {}",
        program.name, program.inputs.size(), inputs.size());
  Tensors env(program.types.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) env[at(program.inputs[i])] = inputs[i];
  Tensors operands;
  for (const Equation& e : program.equations) {
    PlaceScope::Replace here(e.place);
    operands.clear();
    for (ValueId v : e.operands) operands.push_back(env[at(v)]);
    Tensors results = bind_n(*e.primitive, e.params, operands);
    for (int i = 0; i < e.results; ++i) env[at(e.first + i)] = std::move(results[at(i)]);
  }
  Tensors outputs;
  for (ValueId v : program.outputs) outputs.push_back(env[at(v)]);
  return outputs;
}

}  // namespace postern::internal
