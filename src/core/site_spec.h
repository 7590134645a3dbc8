// SiteSpec: all that is known at trace time of a place where a program calls back: a call, tap,
// hook or print.
#pragma once
#include <postern/call.h>
#include <postern/host.h>
#include <postern/sharding.h>

#include "core/described.h"
#include "core/mutex.h"
#include "core/switch.h"
#include "core/text.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace postern::internal {

struct SiteSpec;
using SitePtr = std::shared_ptr<const SiteSpec>;

/// One vmap over a site whose function runs for each element.
struct BatchLevel {
  std::int64_t size;
  std::vector<bool> mapped;  // by operand: has the axis of this level
};

/// What is counted of one place in a program, over all its runs.
struct SiteCounts {
  Mutex guard;
  std::vector<std::int64_t> firings;  // of each device
  std::atomic<std::uint64_t> shown{0}, dropped{0};
  std::atomic<std::int64_t> last{0};  // when one was shown, on a steady clock in ns; 0: never
};

/// The containers in which the user gave and gets the leaves, and the path of each leaf there.
struct SiteTrees {
  std::string operand_structure, result_structure;
  std::vector<std::string> operand_paths, result_paths;
};

/// Where a site's operands lie. In shard_map they are parts on a mesh.
struct SiteShard {
  std::shared_ptr<const Mesh> mesh;
  std::optional<Sharding> partitioned;  // where the site asked to be cut
  // How the first operand is a part on the mesh, where that is known, and of what.
  std::optional<P> spec;
  Dims global_dims;
  // The same on a mesh of processes, of which `mesh` has this one's devices.
  std::optional<Sharding> over_processes;
  Dims process_dims;
};

/// What vmap has made of a site. With `levels`, an operand or result of the equation has the axes
/// of its levels in front, outermost first.
struct SiteBatch {
  std::vector<BatchLevel> levels;
  bool masked = false;  // the equation's last operand is pred, one for each element of the batch:
                        // which are alive
  std::int64_t mask_size = 0;
};

/// What only calls ask for.
struct SiteCall {
  /// A call that overlaps is two sites: one starts the function and gives a handle, the other has
  /// the handle for its operand and gives what the function made.
  enum class Role : std::uint8_t { whole, start, wait } role = Role::whole;
  std::vector<Type> later;  // of Role::start: the function's results, for who waits
  std::chrono::nanoseconds timeout{0}, warn_after{0};
  VmapMethod vmap = VmapMethod::sequential;
  int device = -1;
};

/// What only taps, hooks and prints ask for.
struct SiteTap {
  Transforms transforms;
  bool async = false, derivatives = false, recomputed = false;
  int paired = 0;  // with derivatives: how often the leaves' second half is the first's tangents; 0
                   // of values or tangents alone, 1 of values and tangents, 2 of those and theirs
  int process = -1;                    // where it is shown; -1: everywhere
  std::int64_t every = 1;              // invocations 0, every, 2 * every, ... reach the function
  std::int64_t until = 0;              // so many of those, 0: all
  std::int64_t keep_last = 0;          // async: undelivered invocations that are kept, 0: all
  Attributes options;                  // by name: what stages of their own are asked for
  std::shared_ptr<SiteCounts> counts;  // where are_counted()
  std::shared_ptr<Switch> live;        // of a live hook; without a listener of its own its function
                                       // is disabled()

  bool are_counted() const {
    return every != 1 || until != 0 || keep_last != 0 || !options.items().empty();
  }
};

struct SiteSpec {
  /// What it is to the user; texts and files have its word. All but calls are taps. An operation is
  /// watched by non_finite.
  enum class Kind : std::uint8_t { call, tap, hook, print, operation } kind = Kind::call;
  std::string name;
  Place place;

  std::shared_ptr<const detail::HostFunction>
      function;  // null: `named` is looked up when a run starts
  Named named;

  // What one invocation sees.
  std::vector<Type> operands;
  std::vector<Type> results;  // none of a tap: they are its operands, unchanged
  SiteTrees trees;

  Effect effect = Effect::pure;
  Memory memory = Memory::host;
  bool one_order = false;  // over all devices

  SiteCall call;
  SiteShard shard;
  SiteBatch batch;
  SiteTap tap;

  bool from_file = false;  // so the program's text may not be what the site says

  bool is_tap() const { return kind != Kind::call; }
  bool enters() const { return call.role != SiteCall::Role::wait; }  // a function
  const std::vector<Type>& made() const {
    if (call.role == SiteCall::Role::start) return call.later;
    return results;
  }
};

template <>
struct Words<SiteSpec::Kind> {
  static constexpr const char* all[] = {"call", "tap", "hook", "print", "operation"};
};
template <>
struct Words<SiteCall::Role> {
  static constexpr const char* all[] = {"whole", "start", "wait"};
};
template <>
struct Words<Effect> {
  static constexpr const char* all[] = {"pure", "unordered", "ordered"};
};
template <>
struct Words<VmapMethod> {
  static constexpr const char* all[] = {"sequential", "parallel", "expand_dims", "broadcast_all"};
};
template <>
struct Words<Memory> {
  static constexpr const char* all[] = {"host", "device", "device_recorded"};
};

template <>
struct Described<BatchLevel> {
  static constexpr auto fields =
      std::tuple(field("size", &BatchLevel::size), field("mapped", &BatchLevel::mapped));
};

template <>
struct Described<SiteTrees> {
  using S = SiteTrees;
  static constexpr auto fields =
      std::tuple(field("operand_structure", &S::operand_structure, Say::never),
                 field("operand_paths", &S::operand_paths, Say::never),
                 field("result_structure", &S::result_structure),
                 field("result_paths", &S::result_paths, Say::never));
};
template <>
struct Described<SiteShard> {
  using S = SiteShard;
  static constexpr auto fields =
      std::tuple(field("mesh", &S::mesh), field("partitioned", &S::partitioned),
                 field("cut", &S::spec), field("whole", &S::global_dims),
                 field("over", &S::over_processes), field("over_whole", &S::process_dims));
};
template <>
struct Described<SiteBatch> {
  using S = SiteBatch;
  static constexpr auto fields =
      std::tuple(field("levels", &S::levels), field("masked", &S::masked),
                 field("mask_size", &S::mask_size, Say::never));
};
template <>
struct Described<SiteCall> {
  using S = SiteCall;
  static constexpr auto fields = std::tuple(
      field("timeout", &S::timeout), field("warn_after", &S::warn_after), field("vmap", &S::vmap),
      field("role", &S::role), field("later", &S::later), field("device", &S::device));
};
template <>
struct Described<SiteTap> {
  using S = SiteTap;
  static constexpr auto fields = std::tuple(
      field("transforms", &S::transforms), field("async", &S::async),
      field("derivatives", &S::derivatives), field("recomputed", &S::recomputed),
      field("paired", &S::paired, Say::never).when([](const S& s) { return s.paired != 0; }),
      field("process", &S::process), field("every", &S::every), field("until", &S::until),
      field("keep_last", &S::keep_last),
      field("options", &S::options).when([](const S& s) { return !s.options.items().empty(); }),
      transient("counts", &S::counts),
      field("live", &S::live).when([](const S& s) { return s.live != nullptr; }));
};
template <>
struct Described<SiteSpec> {
  using S = SiteSpec;
  static constexpr auto fields = std::tuple(
      field("name", &S::name, Say::always), field("kind", &S::kind),  // what it is to the user
      field("effect", &S::effect, Say::always),                       // order and elimination
      field("place", &S::place, Say::never),                          // errors name it
      field("operands", &S::operands, Say::never), field("results", &S::results),
      fields_of(&S::trees), field("function", &S::named),  // by name
      transient("fn", &S::function),                       // or as it is
      fields_of(&S::call), fields_of(&S::batch), fields_of(&S::tap), field("memory", &S::memory),
      field("one_order", &S::one_order), fields_of(&S::shard),
      transient("from_file", &S::from_file));  // the loader says so
};

/// Throws TypeError when the function's parameters cannot take the site's leaves: counts, dtypes,
/// ranks; naming site and types.
void check_signature(const SiteSpec& site, const detail::HostFunction& function);
/// Checks the site's own function likewise, if it is known.
void check_signature(const SiteSpec& site);

/// Returns what stands for the function of a live hook that has none: does nothing.
const std::shared_ptr<const detail::HostFunction>& disabled();

/// Parameters of the one primitive behind call, tap, hook and print.
struct SiteParams {
  SitePtr site;
  auto fields(Fields sink) const { return sink.field("site", *site); }
};
/// Makes parameters for a place of its own in a program: each counts and listens for itself, also
/// when a transformation copies it.
ParamsPtr params_of_own(SiteSpec site);

}  // namespace postern::internal
