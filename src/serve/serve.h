// The live page, for the runtime.
#pragma once
namespace postern::internal::live {

/// Looks at POSTERN_SERVE and POSTERN_ATTACH.
void start_from_environment() noexcept;

}  // namespace postern::internal::live
