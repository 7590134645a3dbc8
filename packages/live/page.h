// The live page.
#pragma once
#include <string_view>

namespace postern::internal::live {

/// HTML that needs nothing else. The word NONCE in it stands for what the response's policy allows
/// to run.
extern const std::string_view page;

}  // namespace postern::internal::live
