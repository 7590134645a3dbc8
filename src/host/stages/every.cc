// Of the invocations of a place every so many go on, and of those the first so many.
#include "host/stage.h"

namespace postern::internal::host {

const StageRow every_stage = {.applies = [](const HostSite& s) { return s.spec->every != 1; },
                              .enter =
                                  [](const Stage& stage, Invocation& i) noexcept {
                                    const auto every =
                                        static_cast<std::uint64_t>(i.site.spec->every);
                                    const std::uint64_t n = i.site.spec->counts->firings.fetch_add(
                                        1, std::memory_order_relaxed);
                                    return n % every != 0 || stage.next->enter(i);
                                  }};

const StageRow until_stage = {.applies = [](const HostSite& s) { return s.spec->until != 0; },
                              .enter =
                                  [](const Stage& stage, Invocation& i) noexcept {
                                    const auto until =
                                        static_cast<std::uint64_t>(i.site.spec->until);
                                    const std::uint64_t n = i.site.spec->counts->shown.fetch_add(
                                        1, std::memory_order_relaxed);
                                    return n >= until || stage.next->enter(i);
                                  }};

}  // namespace postern::internal::host
