// What taps, hooks and prints share: a site whose results are its operands.
#pragma once
#include <postern/tap.h>

namespace postern::detail {

/// `word` is what texts call it; it must outlive everything. Without a function it is a live
/// hook's.
std::vector<Tensor> tap_as(const char* word, const TapOptions& options, const Shown& value,
                           const Shown* mapped, const Callee* fn, const Place& place);

}  // namespace postern::detail
