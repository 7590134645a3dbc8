// Which process of the cluster this is, for who looks and does not join it.
#pragma once
#include <postern/detail/api.h>

namespace postern::internal::clusters {

/// Returns the rank and the number of processes, as far as is known: 0 and 1 before the cluster is
/// joined.
POSTERN_API int rank_now();
POSTERN_API int size_now();

}  // namespace postern::internal::clusters
