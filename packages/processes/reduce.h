// Reductions of rows that came from several processes.
#pragma once
#include <postern/dtype.h>

#include <cstddef>
#include <span>

namespace postern::internal::clusters {

enum class Reduction { sum, max, min };
/// Reduces `count` elements, of a dtype that reduces() allows, each of the rows' elements there;
/// `out` may be one of the rows.
void reduce_rows(Reduction reduction, DType dtype, std::span<const void* const> rows,
                 std::size_t count, void* out);

}  // namespace postern::internal::clusters
