// Looking up functions for custom calls.
#include "guest/call_site.h"

#include "core/check.h"
#include "host/registry.h"

namespace postern::guest {

GuestRun::GuestRun(HostSitePtr of, std::uint64_t registry_version)
    : site(std::move(of)), version(registry_version) {
  sites = site.get();
  site_count = 1;
  owner = site;
  lane_run = any.lane_run;
}

void GuestRun::belong_to(std::uint64_t execution) {
  if (number == execution) return;
  if (number != 0) {
    close();
    reset();
  }
  number = execution;
}

CallSite::~CallSite() {
  for (const Spare& spare : spares_) delete spare.run.load(std::memory_order_acquire);
}

std::unique_ptr<GuestRun> CallSite::make(const Buffers& buffers) {
  const std::uint64_t version = host::registry_version();
  auto function = host::function_named(asked_.function);
  HostSitePtr gone;  // after the lock: functions may go with it, and their ends may be anything
  const std::scoped_lock lock(guard_);
  if (site_ && function && site_->function == function)
    return std::make_unique<GuestRun>(site_, version);
  const std::shared_ptr<SiteSpec> spec = spec_of(asked_, buffers.operands, buffers.results);
  if (site_) spec->counts = site_->spec->counts;  // of the place, whatever its function
  if (!function) {
    gone.swap(site_);
    throw CallbackError(ErrorCode::unregistered,
                        fmt::format("{}: no host function is registered under '{}'",
                                    host::describe(*spec), asked_.function),
                        Site{spec->name, spec->place}, 0, nullptr);
  }
  check_signature(*spec, *function);
  gone.swap(site_);
  site_ = std::make_shared<const host::HostSite>(spec, std::move(function));
  return std::make_unique<GuestRun>(site_, version);
}

bool CallSite::renew(GuestRun& run) {
  const std::uint64_t version = host::registry_version();
  if (run.version == version) return true;
  if (host::function_named(asked_.function) != run.site->function) return false;
  run.version = version;
  return true;
}

}  // namespace postern::guest
