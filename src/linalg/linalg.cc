// Binding linear algebra blocks, and small helpers of theirs.
#include "linalg/linalg.h"

#include "core/lists.h"
#include "ops/axes.h"
#include "ops/elementwise.h"
#include "transform/batch.h"
#include "transform/walk.h"

namespace postern::internal::linear_algebra {

Tensors over_leading(const detail::BlockConfig& config, Default matrices, TensorSpan x) {
  const auto by_default = [&](TensorSpan in) { return matrices(config.object.get(), in); };
  const Dims lead = leading(x[0]);
  if (lead.empty()) return by_default(x);
  const std::int64_t size = internal::product(lead);
  Types element_types;
  Tensors flat;
  for (const Tensor& t : x) {
    element_types.push_back({t.dtype(), {rows(t), columns(t)}});
    flat.push_back(reshape(t, {size, rows(t), columns(t)}));
  }
  const Closed element = trace_program(config.name, element_types, by_default);
  auto [y, from] = batch_of(*element.program, flat, std::vector<int>(flat.size(), 0), size);
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = move_batch(y[i], from[i], 0, size);
    y[i] = reshape(y[i], joined(lead, tail(y[i].dims(), 1)));
  }
  return std::move(y);
}

Tensor swapped(const Tensor& a) { return move_axis(a, -1, -2); }
Tensor adjoint(const Tensor& a) { return conj(swapped(a)); }
Tensor hermitian_part(const Tensor& a) { return (a + adjoint(a)) * 0.5f; }
Tensor identity(DType dtype, std::int64_t n) { return eye(dtype, n, n); }
Tensor diagonal_matrix(const Tensor& d) {
  return expand_dims(d, -1) * identity(d.dtype(), d.dims().back());
}

Prepared prepared(const char* op, const Operand& operand, bool square) {
  Tensor a = as_float(operand.tensor());
  check(a.rank() >= 2, "{}: a matrix, or a batch of them, is needed, got {}", op,
        to_string(operand.tensor().type()));
  check(!square || rows(a) == columns(a), "{}: square matrices are needed, got {}", op,
        to_string(a.type()));
  const DType dtype = a.dtype();
  const bool narrow = dtype == DType::f16 || dtype == DType::bf16;
  check(narrow || dtype == DType::f32 || dtype == DType::f64 || is_complex(dtype),
        "{}: f16, bf16, f32, f64, c64 or c128 is needed, got {}", op, to_string(a.type()));
  if (narrow) a = convert(a, DType::f32);
  return {a, dtype};
}

}  // namespace postern::internal::linear_algebra
