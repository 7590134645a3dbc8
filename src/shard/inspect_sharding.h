// inspect_sharding: a value whose sharding is told to a function when its program is compiled.
#pragma once
#include <postern/sharding.h>

#include <functional>

#include "core/primitive.h"

namespace postern::internal {

extern const Primitive inspect_sharding_p;

/// The function of such an equation.
const std::function<void(const Sharding&)>& inspector_of(const Equation& equation);

}  // namespace postern::internal
