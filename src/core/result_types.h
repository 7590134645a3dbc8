// What an equation makes: the one place where types come into programs from rules.
#pragma once
#include "core/primitive.h"

namespace postern::internal {

/// The types of a primitive's results. Throws TypeError when they may not be, or have more bytes
/// than 63 bits count.
inline Types result_types(const Primitive& primitive, const Params* params, TypeSpan operands) {
  Types types = primitive.type(params, operands);
  for (const Type& t : types) static_cast<void>(t.byte_size());  // throws
  return types;
}

}  // namespace postern::internal
