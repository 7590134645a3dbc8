// The table of operations and what is checked of every row: value against JAX, compiled against
// evaluated, gradient against JAX, jvp against vjp and finite differences, batch against loop,
// other dtypes, empty arrays. `scripts/golden` reads the rows and writes tests/data/ops.txt.
#pragma once
#include <gtest/gtest.h>
#include <postern/postern.h>
#include <postern/transforms.h>

#include <string>
#include <vector>

namespace ops {

namespace pn = postern;
using V = const std::vector<pn::Tensor>&;
using Function = pn::Tensor (*)(V);

enum class Smooth { yes, no, ours };  // whether it has a derivative to check; ours: JAX has none
enum class Shapes { any, fixed };     // whether all operands may have any one shape
using enum Smooth;
using enum Shapes;

struct Row {
  const char* name;
  const char* jax;       // the same in Python; operands are x, y, z
  const char* operands;  // "f32[2,3]:-2:2 s32[4]:0:5": type, then the range of the values
  Function function;
  Smooth smooth = yes;
  Shapes shapes = fixed;
  double tolerance = 2e-5;
};

inline std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

class Table : public testing::TestWithParam<Row> {};

void check_value(const Row& row);
void check_gradient(const Row& row);
void check_batch(const Row& row);
void check_dtypes(const Row& row);
/// Of operands "f32[10]:special": nan, the infinities, both zeros and their combinations.
void check_special(const Row& row);

inline std::string row_name(const testing::TestParamInfo<Row>& info) { return info.param.name; }

}  // namespace ops

/// One suite of all checks over an array of rows.
#define POSTERN_OPS_SUITE(Suite, rows)                         \
  class Suite : public ops::Table {};                          \
  TEST_P(Suite, Value) { ops::check_value(GetParam()); }       \
  TEST_P(Suite, Gradient) { ops::check_gradient(GetParam()); } \
  TEST_P(Suite, Batch) { ops::check_batch(GetParam()); }       \
  TEST_P(Suite, DTypes) { ops::check_dtypes(GetParam()); }     \
  INSTANTIATE_TEST_SUITE_P(All, Suite, testing::ValuesIn(rows), ops::row_name)
