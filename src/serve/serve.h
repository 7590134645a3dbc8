// The live page, for the runtime.
#pragma once
#include <span>
#include <string>

#include "core/site_spec.h"

namespace postern::internal::live {

/// Looks at POSTERN_SERVE.
void start_from_environment() noexcept;

/// Adds the live hooks of a program that is ready to run. With the first of them the process
/// listens for `postern attach`, unless POSTERN_ATTACH=0.
void add_hooks(const std::string& program, std::span<const SitePtr> sites);

}  // namespace postern::internal::live
