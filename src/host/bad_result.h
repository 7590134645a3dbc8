// What is thrown inside a firing when a host function's results do not fit their declaration.
#pragma once
#include <stdexcept>

namespace postern::host {

struct BadResult : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace postern::host
