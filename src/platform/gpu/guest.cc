// Calls of another XLA's programs on a GPU.
#include "guest/guest.h"

#include "platform/gpu/enter.h"
#include "platform/gpu/handler.h"

namespace postern::internal::gpu {

namespace {

using Frame = guest::Home::Frame;

const Driver* guests_driver = nullptr;  // set before handlers are registered

bool enter(host::RunState& run, const host::HostSite& site, void* const* buffers, int device,
           Frame frame) noexcept {
  return enter_site(*guests_driver, run, site, buffers, device, pjrt::stream_of(frame));
}

/// Copies by a function of the driver's that only queues, and waits until that is done.
template <auto by>
void copy(void* to, const void* from, std::size_t bytes, Frame frame) {
  const Driver& driver = *guests_driver;
  void* const stream = pjrt::stream_of(frame);
  const ContextScope scope(driver, staging_of(driver, stream).context());
  driver.check((driver.*by)(to, from, bytes, stream), "to copy what a call on a mesh shares");
  driver.check(driver.synchronize(stream), "to compute what a call on a mesh shares");
}

constinit guest::Home home{.platform = {},
                           .enter = enter,
                           .to_host = copy<&Driver::copy_to_host>,
                           .to_device = copy<&Driver::copy_to_device>};

}  // namespace

guest::Handlers guest_handlers(const Driver& driver, std::string_view platform) {
  guests_driver = &driver;
  home.platform = platform;
  return guest::handlers<home>();
}

}  // namespace postern::internal::gpu
