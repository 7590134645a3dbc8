// XLA recurses through what is nested in a program, on the stack of the thread that compiles.
#pragma once
#include <functional>
#include <string_view>

namespace postern::internal::pjrt {

/// Returns how deep the regions and lists of a module, and calls of its functions, may be nested.
int nesting_of(std::string_view stablehlo);

/// Runs it with a stack that holds what XLA needs for a module nested so deep: here when it is
/// flat, else on a thread of its own. Throws Error(resource_exhausted) for one that no stack would
/// hold.
void with_stack_for(int nesting, const std::function<void()>& compile);

}  // namespace postern::internal::pjrt
