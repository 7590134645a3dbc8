// The table of programs that the tests of transformations go through.
#pragma once
#include "support.h"

#include <functional>

namespace postern::test {

/// From f64[3] to an f64 of any shape.
using Program1 = std::function<Tensor(Tensor)>;

struct Row {
  const char* name;
  Program1 f;
  bool reverse = true;
  bool forward = true;  // false: by custom_vjp
};
std::vector<Row> rows();

}  // namespace postern::test
