// The overrides that come with the library.
#pragma once

namespace postern::internal::linear_algebra {

void add_linalg_overrides();
void add_cumulative_overrides();

}  // namespace postern::internal::linear_algebra
