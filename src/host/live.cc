// Turning listeners on and off.
//
// A hook's Switch has the listeners, and made of them the list of sites that invocations take. The
// list is replaced as a whole, so that an invocation under way goes on with the one that it took.
// What a listener's function sees passes a gate, which whoever turns it off can close and wait at.
#include "host/live.h"

#include <algorithm>

#include "core/check.h"
#include "core/fork.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "host/gate.h"
#include "host/registry.h"
#include "host/stage.h"
#include "site/live_options.h"

namespace postern {
using namespace internal;

/// A live hook as it is known. Does not keep the program.
struct detail::LiveSite {
  std::string program;
  std::weak_ptr<const SiteSpec> spec;
  std::weak_ptr<Switch> at;
  std::uint64_t number = 0;
  std::string name;
  std::vector<Type> types;
  std::vector<std::string> paths;
  Place place;
  Transforms transforms;
  bool has_own = false;
};

namespace internal::host {

namespace {

constexpr std::size_t most_listeners = 64;
std::atomic<std::uint64_t> changes{0};

/// Returns a function that enters this one through the gate, and does nothing once that is closed.
std::shared_ptr<const detail::HostFunction> behind(
    std::shared_ptr<Gate> gate, std::shared_ptr<const detail::HostFunction> function) {
  struct Gated {
    std::shared_ptr<Gate> gate;
    std::shared_ptr<const detail::HostFunction> function;
  };
  auto out = std::make_shared<detail::HostFunction>(*function);
  out->object = std::make_shared<Gated>(Gated{std::move(gate), std::move(function)});
  out->invoke = [](void* object, const detail::Firing& firing) {
    const auto& [its_gate, behind_it] = *static_cast<Gated*>(object);
    const Gate::Entry inside(*its_gate);
    if (inside) behind_it->invoke(behind_it->object.get(), firing);
  };
  return out;
}

/// Returns the site with other settings, and counted anew.
SitePtr with_options(const SiteSpec& spec, const LiveOptions& options) {
  auto out = std::make_shared<SiteSpec>(spec);
  set_options(out->tap, options);
  out->tap.counts = std::make_shared<SiteCounts>();
  return out;
}

/// Makes the list of sites anew, with the same sites for all listeners but new ones and that whose
/// number is `changed`. Under the guard.
void rebuild(Switch& s, std::uint64_t changed = 0) {
  const Switch::Sites none;
  const Switch::Sites& before = s.sites ? *s.sites : none;
  auto sites = std::make_shared<Switch::Sites>();
  for (const auto& l : s.listeners) {
    const auto same = std::ranges::find(before, l->number, &ListenerSite::number);
    if (same != before.end() && l->number != changed)
      sites->push_back(*same);
    else
      sites->push_back(std::make_shared<const ListenerSite>(
          with_options(*l->spec, l->options), l->function, l->number, l->what == ends_run));
  }
  s.sites = std::move(sites);
  s.on.store(!s.listeners.empty(), std::memory_order_release);
  ++changes;
}

}  // namespace

ListenerSite::ListenerSite(SitePtr of, std::shared_ptr<const detail::HostFunction> fn,
                           std::uint64_t its_number, bool ends_it)
    : HostSite(std::move(of), std::move(fn)), number(its_number), ends_run_there(ends_it) {
  make_stages(*this, listener_stages);
}

bool ListenerSite::is_spent() const {
  const std::uint64_t shown = spec->tap.counts->shown.load(std::memory_order_relaxed);
  return spec->tap.until != 0 && shown >= static_cast<std::uint64_t>(spec->tap.until);
}

std::shared_ptr<const Switch::Sites> sites_at(const Switch& s) {
  if (!s.on.load(std::memory_order_acquire)) return nullptr;
  std::scoped_lock lock(s.guard);
  return s.sites;
}

std::shared_ptr<const ListenerSite> changed_own(const HostSite& site) {
  Switch& s = *site.spec->tap.live;
  std::shared_ptr<const ListenerSite> own;
  {
    std::scoped_lock lock(s.guard);
    own = s.own;
  }
  if (!own || own->function == site.function) return own;
  auto now = std::make_shared<const ListenerSite>(own->spec, site.function, 0);
  // What a name means is made once. A run's own function goes with that run.
  if (function_named(site.spec->named.name) == site.function) {
    const std::scoped_lock lock(s.guard);
    if (s.own == own) s.own = now;
  }
  return now;
}

void take_off(Switch& s, std::uint64_t number, const ListenerSite* seen) {
  std::shared_ptr<Listening> gone;  // both go after the lock: what they own is the user's
  std::shared_ptr<const Switch::Sites> before;
  std::scoped_lock lock(s.guard);
  const auto found = std::ranges::find(s.listeners, number, &Listening::number);
  if (found == s.listeners.end()) return;
  const auto is_seen = [&](const auto& site) { return site.get() == seen; };
  if (seen && std::ranges::none_of(*s.sites, is_seen)) return;  // it was changed, and counts anew
  gone = std::move(*found);
  s.listeners.erase(found);
  before = s.sites;
  rebuild(s);
}

std::shared_ptr<Listening> turn_on(const detail::LiveSite& hook, const Callee& fn,
                                   const LiveOptions& options, std::string what) {
  refuse_forked();
  check_options("hook", hook.name, options, "listeners");
  const SitePtr spec = hook.spec.lock();
  if (!spec)
    throw Error(ErrorCode::not_found,
                fmt::format("hook '{}': the program that it is in is gone", hook.name));
  auto function = fn.function() ? fn.function() : function_named(fn.named().name);
  if (!function)
    throw Error(ErrorCode::not_found, fmt::format("hook '{}': no function is registered under '{}'",
                                                  hook.name, fn.named().name));
  check_signature(*spec, *function);
  static std::atomic<std::uint64_t> count{0};
  auto out = std::make_shared<Listening>();
  out->number = ++count;
  out->what = std::move(what);
  out->at = spec->tap.live;
  auto alone = std::make_shared<SiteSpec>(*spec);
  alone->tap.live = nullptr;
  alone->tap.options = {};  // which are the program's own listener's
  alone->function = nullptr;
  alone->named = fn.named();
  out->spec = std::move(alone);
  out->gate = std::make_shared<Gate>();
  out->function = behind(out->gate, std::move(function));
  out->options = options;
  Switch& s = *spec->tap.live;
  std::scoped_lock lock(s.guard);
  if (s.listeners.size() >= most_listeners)
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("hook '{}' has {} listeners, which is the most", hook.name,
                            s.listeners.size()));
  s.listeners.push_back(out);
  try {
    rebuild(s);
  } catch (...) {  // nobody could turn it off
    s.listeners.pop_back();
    throw;
  }
  return out;
}

void turn_off(Listening& listening, bool waits) noexcept {
  try {
    if (const auto s = listening.at.lock()) take_off(*s, listening.number);
  } catch (...) {  // no memory for the new list: the gate lets nobody in
  }
  listening.gate->close(waits);
}

void change(Listening& listening, const LiveOptions& options) {
  check_options("hook", listening.spec->name, options, "listeners");
  const auto s = listening.at.lock();
  if (!s) return;
  std::scoped_lock lock(s->guard);
  listening.options = options;
  rebuild(*s, listening.number);
}

LiveOptions options_of(const Listening& listening) {
  const auto s = listening.at.lock();
  if (!s) return {};
  std::scoped_lock lock(s->guard);
  return listening.options;
}

bool is_on(const Listening& listening) {
  const auto s = listening.at.lock();
  if (!s) return false;
  std::scoped_lock lock(s->guard);
  return std::ranges::find(s->listeners, listening.number, &Listening::number) !=
         s->listeners.end();
}

namespace {

struct Known {
  Mutex guard;
  std::vector<std::shared_ptr<const detail::LiveSite>> sites;
};
Known& known() { return never_destroyed<Known>(); }

}  // namespace

void add_live_hooks(const std::string& program, std::span<const SitePtr> sites) {
  for (const SitePtr& s : sites) {
    if (!s->tap.live) continue;
    Known& k = known();
    std::scoped_lock lock(k.guard);
    std::erase_if(k.sites, [](const auto& site) { return site->spec.expired(); });
    const auto known_as =
        std::ranges::find(k.sites, s->tap.live->number, &detail::LiveSite::number);
    if (known_as != k.sites.end()) {  // as a part's, which is compiled before its whole is known
      if ((*known_as)->program != "stage") continue;
      k.sites.erase(known_as);
    }
    k.sites.push_back(std::make_shared<const detail::LiveSite>(detail::LiveSite{
        program, s, s->tap.live, s->tap.live->number, s->name, s->operands, s->trees.operand_paths,
        s->place, s->tap.transforms, s->function != disabled()}));
    ++changes;
  }
}

std::optional<LiveHook> live_hook(std::uint64_t number) {
  for (LiveHook& hook : live_hooks())
    if (hook.number() == number) return std::move(hook);
  return {};
}

std::uint64_t live_changes() { return changes.load(); }

}  // namespace internal::host

// --- what users see ---

Listening::~Listening() { off(); }
Listening& Listening::operator=(Listening&& other) noexcept {
  if (this != &other) off();
  state_ = std::move(other.state_);
  return *this;
}

void Listening::off() noexcept {
  if (const auto state = std::move(state_)) host::turn_off(*state, true);
}

void Listening::change(const LiveOptions& options, Place place) const {
  PlaceScope at(place);
  if (state_) host::change(*state_, options);
}

bool Listening::is_on() const { return state_ && host::is_on(*state_); }

LiveOptions Listening::options() const {
  return state_ ? host::options_of(*state_) : LiveOptions();
}

const std::string& LiveHook::name() const { return site_->name; }
const std::string& LiveHook::program() const { return site_->program; }
std::uint64_t LiveHook::number() const { return site_->number; }
const std::vector<Type>& LiveHook::types() const { return site_->types; }
const std::vector<std::string>& LiveHook::paths() const { return site_->paths; }
const Place& LiveHook::place() const { return site_->place; }
const Transforms& LiveHook::transforms() const { return site_->transforms; }
bool LiveHook::has_own() const { return site_->has_own; }

Listening LiveHook::turn_on(const Callee& fn, const LiveOptions& options) const {
  PlaceScope at(fn.place());
  return Listening(host::turn_on(*site_, fn, options, "function"));
}

void LiveHook::end_run() const {
  const Callee end([](const TapInfo& info, std::span<const AnyView>) { info.end_run(); });
  host::turn_on(*site_, end, {.until = 1}, std::string(host::ends_run));
}

std::size_t LiveHook::listeners() const { return host::listeners_of(*this).size(); }

void LiveHook::change(const LiveOptions& options, Place place) const {
  PlaceScope at(place);
  check_options("hook", name(), options, "listeners");
  const auto spec = site_->spec.lock();
  if (!spec)
    throw Error(ErrorCode::not_found, fmt::format("hook '{}': the program is gone", name()));
  if (!has_own())
    throw Error(ErrorCode::failed_precondition,
                fmt::format("hook '{}': the program has no listener of its own there", name()));
  auto alone = std::make_shared<SiteSpec>(*host::with_options(*spec, options));
  alone->tap.live = nullptr;
  auto now = std::make_shared<const host::ListenerSite>(std::move(alone), spec->function, 0);
  const std::scoped_lock lock(spec->tap.live->guard);
  spec->tap.live->own.swap(now);  // the one before goes after the lock, with its function
  ++host::changes;
}

std::vector<host::ListenerNow> host::listeners_of(const LiveHook& hook) {
  std::vector<ListenerNow> out;
  const auto s = hook.internal()->at.lock();
  if (!s) return out;
  std::scoped_lock lock(s->guard);
  for (const auto& l : s->listeners) out.push_back({l->number, l->what, l->options});
  return out;
}

std::optional<LiveOptions> host::own_settings(const LiveHook& hook) {
  const auto spec = hook.internal()->spec.lock();
  if (!spec || !hook.has_own()) return {};
  std::scoped_lock lock(spec->tap.live->guard);
  return options_of((spec->tap.live->own ? *spec->tap.live->own->spec : *spec).tap);
}

std::vector<LiveHook> live_hooks() {
  std::vector<LiveHook> out;
  std::scoped_lock lock(host::known().guard);
  for (const auto& site : host::known().sites)
    if (!site->spec.expired()) out.emplace_back(site);
  return out;
}

}  // namespace postern
