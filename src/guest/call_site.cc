// Looking up functions for custom calls.
#include "guest/call_site.h"

#include "core/check.h"
#include "guest/meetings.h"
#include "host/registry.h"

namespace postern::internal::guest {

// What a guest's run has for a number on its lane: these bits, of all and of those that are made
// for several devices, and the address of its Home.
static constexpr std::uint64_t of_guests = std::uint64_t{1} << 63, of_several = of_guests >> 1;

GuestRun::GuestRun(HostSitePtr its_site, std::uint64_t registry_version, std::int64_t on_mesh_at,
                   bool for_several, const Home& home)
    : site(std::move(its_site)), version(registry_version), position(on_mesh_at) {
  sites = site.get();
  site_count = 1;
  owner = site;
  lane_run = of_guests | (for_several ? of_several : 0) | reinterpret_cast<std::uintptr_t>(&home);
}

Waiting GuestRun::waiting(host::RunName name, int device) {
  if (name.started || !(name.lane_run & of_guests)) return {};
  const std::uint64_t home = name.lane_run & ~(of_guests | of_several);
  return {.home = reinterpret_cast<const Home*>(home),
          .device = name.lane_run & of_several ? several_devices : device};
}

void GuestRun::belong_to(std::uint64_t execution) {
  // XLA counts from 0, we from 1: no run of ours comes to this.
  execution += std::uint64_t{1} << 48;
  if (number == execution) return;
  if (number != 0) {  // another one's before, whose state ends here
    close();
    reset();
  }
  number = execution;
}

CallSite::CallSite(CallAttributes attributes) : attributes_(std::move(attributes)) {
  if (attributes_.kept) kept_ = host::function_named(attributes_.function);
}

FunctionPtr CallSite::function() const {
  return kept_ ? kept_ : host::function_named(attributes_.function);
}

CallSite::~CallSite() {
  if (attributes_.meets) forget_place(this);
  for (const Spare& spare : spares_) delete spare.run.load(std::memory_order_acquire);
}

std::unique_ptr<GuestRun> CallSite::make(const Buffers& buffers, const Home& home) {
  const std::uint64_t version = host::registry_version();
  auto function = this->function();
  decltype(sites_) gone;  // after the lock: the ends of functions may be anything
  const std::scoped_lock lock(guard_);
  if (!spec_) spec_ = spec_of(attributes_, buffers.operands, buffers.results);
  const std::int64_t position = buffers.position;
  // All are of one function: when the name means another one, they go.
  if (!sites_.empty() && sites_.begin()->second->function != function) gone.swap(sites_);
  if (!function)
    throw CallbackError(ErrorCode::unregistered,
                        fmt::format("{}: no host function is registered under '{}'",
                                    host::describe(*spec_), attributes_.function),
                        Site{spec_->name, spec_->place}, 0, nullptr);
  auto found = sites_.find(position);
  if (found == sites_.end()) {
    check_signature(*spec_, *function);
    auto site = std::make_shared<host::HostSite>(spec_, std::move(function));
    if (position >= 0) site->here.coordinates = attributes_.coordinates(position);
    found = sites_.emplace(position, std::move(site)).first;
  }
  return std::make_unique<GuestRun>(found->second, version, position, attributes_.meets > 1, home);
}

bool CallSite::renew(GuestRun& run) {
  const std::uint64_t version = host::registry_version();
  if (run.version == version) return true;
  if (function() != run.site->function) return false;
  run.version = version;
  return true;
}

}  // namespace postern::internal::guest
