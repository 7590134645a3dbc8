// What is thrown inside an invocation, for failures that have codes of their own.
#pragma once
#include <stdexcept>

namespace postern::internal::host {

/// A host function's results do not fit their declaration.
struct BadResult : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Who serves the function says that its time is over.
struct NoAnswer : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace postern::internal::host
