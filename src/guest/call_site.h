// A custom call of a program that another XLA has loaded, and the runs that its invocations are.
#pragma once
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "core/mutex.h"
#include "guest/call_attributes.h"
#include "guest/guest.h"
#include "host/run_state.h"

namespace postern::internal::guest {

using HostSitePtr = std::shared_ptr<const host::HostSite>;
using FunctionPtr = std::shared_ptr<const detail::HostFunction>;

/// The buffers of an invocation, without tokens.
struct Buffers {
  std::vector<Type> operands, results;
  std::int64_t position;  // on the mesh, which the last operand says; -1: there is none
};

/// A run of one site, for one invocation after the other.
class GuestRun final : public host::RunState {
 public:
  GuestRun(HostSitePtr its_site, std::uint64_t registry_version, std::int64_t on_mesh_at,
           bool for_several, const Home& home);
  /// Returns what waits while the run of that name does, on that device; nothing unless it is a
  /// guest's. Those have names that nobody waits for.
  static Waiting waiting(host::RunName name, int device);
  /// Makes the invocation belong to another execution of the program.
  void belong_to(std::uint64_t execution);
  /// Returns whether the call is on a mesh: then its last operand is the position.
  bool on_mesh() const { return position >= 0; }

  const HostSitePtr site;
  std::uint64_t version;  // of the registry, when the site's function was looked up last
  bool plain = false;     // tokens, if any, are in front of all buffers; nothing is packed
  std::size_t tokens_in = 0, tokens_out = 0;  // of those
  const std::int64_t position;                // on the mesh; -1: there is none
};

/// What is kept for a custom call as long as its program is loaded. Threads take a run for an
/// invocation and give it back when all went well, so that nothing is made or counted twice for an
/// invocation and devices share no line of the cache.
class CallSite {
 public:
  explicit CallSite(CallAttributes attributes);
  ~CallSite();
  const CallAttributes& attributes() const { return attributes_; }
  CallSite(const CallSite&) = delete;

  /// Takes a run that was given back, if its function is still what the name means.
  std::unique_ptr<GuestRun> take(int device) noexcept {
    return std::unique_ptr<GuestRun>(spare(device).exchange(nullptr, std::memory_order_acq_rel));
  }
  /// Makes a run for buffers of these types, which are the same for all invocations. Throws
  /// CallbackError (unregistered), and TypeError when the function cannot take the buffers.
  std::unique_ptr<GuestRun> make(const Buffers& buffers, const Home& home);
  /// Returns whether a run that was taken may be used: its name still means its function.
  bool renew(GuestRun& run);
  void give_back(std::unique_ptr<GuestRun> run, int device) noexcept {
    delete spare(device).exchange(run.release(), std::memory_order_acq_rel);
  }

 private:
  FunctionPtr function() const;
  std::atomic<GuestRun*>& spare(int device) noexcept {
    return spares_[static_cast<std::size_t>(device) % spares_.size()].run;
  }
  struct alignas(64) Spare {
    std::atomic<GuestRun*> run{nullptr};
  };

  const CallAttributes attributes_;
  FunctionPtr kept_;
  Mutex guard_;
  SitePtr spec_;                               // from the first invocation on
  std::map<std::int64_t, HostSitePtr> sites_;  // of the same function, by position
  std::array<Spare, 8> spares_;
};

}  // namespace postern::internal::guest
