// Programs inside equations.
#include "transform/walk.h"

#include "core/check.h"
#include "core/lists.h"
#include "transform/simplify.h"

namespace postern::internal {

Closed trace_user(const char* what, const Types& types, const TensorFunction& f) {
  PlaceScope::Replace none{Place{}};
  return trace_program(what, types, f);
}

Closed trace_inner(const char* what, const Types& types, const TensorFunction& f) {
  Closed closed = trace_program(what, types, f);
  Program program = *simplify(*closed.program);
  std::rotate(program.inputs.begin(), nth(program.inputs, types.size()), program.inputs.end());
  return {std::make_shared<const Program>(std::move(program)), std::move(closed.captures)};
}

Closed trace_user_inner(const char* what, const Types& types, const TensorFunction& f) {
  PlaceScope::Replace none{Place{}};
  return trace_inner(what, types, f);
}

}  // namespace postern::internal
