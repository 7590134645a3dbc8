// Which process of the cluster this is, for who looks and does not join it.
#pragma once
#include <postern/detail/api.h>

#include <cstdint>

namespace postern::internal::clusters {

/// Returns the rank and the number of processes, as far as is known: 0 and 1 before the cluster is
/// joined.
POSTERN_API int rank_now();
POSTERN_API int size_now();
/// Returns the job's number, likewise; 0: none.
POSTERN_API std::uint64_t job_now();

/// Returns whether that run over processes has failed, on any of them, as far as is known here.
POSTERN_API bool has_failed(std::uint64_t run);

}  // namespace postern::internal::clusters
