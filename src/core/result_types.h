// What an equation makes: the one place where types come into programs from rules.
#pragma once
#include "core/primitive.h"
#include "core/value.h"

namespace postern::internal {

/// Returns the types of a primitive's results. Throws TypeError when they may not be, or are none
/// that make_type would make.
inline Types result_types(const Primitive& primitive, const Params* params, TypeSpan operands) {
  Types types = primitive.type(params, operands);
  for (const Type& t : types) check_type(t);
  return types;
}

}  // namespace postern::internal
