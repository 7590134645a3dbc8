// The live page, for the runtime.
#pragma once

namespace postern::live {

/// Looks at POSTERN_SERVE.
void start_from_environment() noexcept;

}  // namespace postern::live
