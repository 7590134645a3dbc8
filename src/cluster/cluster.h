// The cluster that this process belongs to, and its runs that have collectives over processes, as
// the rest of Postern sees them. packages/processes joins a job, and has the contract of these
// runs.
#pragma once
#include <postern/cluster.h>
#include <postern/type.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/collectives.h"
#include "cluster/rank.h"
#include "cluster/store.h"
#include "cluster/transport.h"

namespace postern::internal::clusters {

/// Takes Config's choice before the cluster is joined. Throws Error(failed_precondition) when
/// another one was.
void choose(const std::string& library, std::chrono::milliseconds patience);
POSTERN_API std::chrono::milliseconds patience();

/// What two processes must have in common to meet.
struct Subject {
  POSTERN_API Subject(std::string where, std::string what, std::string among);
  const std::string place;   // "call 'psum' at main.cc:12"
  const std::string detail;  // "sum of f32[3] over processes 0, 1": same on both sides
  const std::string group;   // "0, 1"
  const std::uint64_t fingerprint;
};

/// A collective of one device, in a run.
struct Meeting {
  std::uint64_t run;
  int lane;  // of the device, by its place in the mesh from 1 on; 0: of a process without any
  const Subject& subject;
  const std::function<bool()>& stopped;  // whether the run wants to end
  const Collective& collective;
  const Collective::Group& group;
  const Type& type;     // of what is at x, row-major
  const void* x;        // this process's
  void* y;              // the result
  std::int32_t device;  // its number, of `relay`
};

/// A run over processes, as the cluster sees it.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Notes that it has failed on another process.
  virtual void ended_elsewhere(const std::string& why) noexcept = 0;
  /// Returns the site that it is at; "" when it is at none.
  virtual std::string site_now() = 0;
};

class Cluster {
 public:
  /// Joins it when it is first asked for. Throws PluginError.
  static Cluster& get();
  /// Returns the one that was joined, or null.
  static Cluster* joined();

  explicit Cluster(const Transport* transport) : transport_(transport) {}
  virtual ~Cluster() = default;
  Cluster(const Cluster&) = delete;

  const Transport* transport() const { return transport_; }  // null where the process is alone
  int rank() const { return transport_ ? transport_->rank : 0; }
  int size() const { return transport_ ? transport_->size : 1; }
  /// Returns a number that all processes have, and no other job; 0 where the process is alone.
  std::uint64_t job() const { return job_; }
  /// Returns what to add to this process's clock to have that of process 0, and its error.
  std::chrono::nanoseconds clock_offset() const { return clock_offset_; }
  std::chrono::nanoseconds clock_error() const { return clock_error_; }

  /// The number of a run that begins or is started now. `watched_for` is given it and says who is
  /// to hear of its end; that may be at once.
  using WatchedFor = std::function<std::shared_ptr<Watched>(std::uint64_t run)>;
  virtual std::uint64_t claim(const WatchedFor& watched_for) = 0;
  /// Runs a collective, and returns which of those in its run, lane and group it was. Throws Error
  /// when others are about something else, another process has failed, or the run is to end.
  virtual std::uint64_t meet(const Meeting& meeting) = 0;
  /// Notes that a device of the run, of so many, has come to its end together with all other
  /// processes. With the last of them the run is over, although its results may not be there yet.
  virtual void came_to_end(std::uint64_t run, std::size_t devices) = 0;
  /// Fails the run here if it lives: tells the others why.
  virtual void run_failed(std::uint64_t run, const std::string& why) noexcept = 0;
  /// Returns whether it is one of the last runs that have failed.
  virtual bool has_failed(std::uint64_t run) = 0;
  /// Returns " while it waited for process 3", where a device of it does.
  virtual std::string waiting() const = 0;

  virtual Store& store() = 0;
  // As the functions of first.h, where there are several processes.
  virtual void say_count(std::uint64_t what, std::int64_t done) noexcept = 0;
  virtual std::vector<std::int64_t> counts_of(std::uint64_t what) = 0;
  virtual std::vector<std::string> gather_on_first(const std::string& who, const std::string& mine,
                                                   std::chrono::milliseconds limit) = 0;

 protected:
  const Transport* transport_;
  std::uint64_t job_ = 0;
  std::chrono::nanoseconds clock_offset_{0}, clock_error_{0};
};

/// Joins the job of the transport (null: the process is alone). Called once; the result lives as
/// long as the process.
using Join = Cluster*(const Transport* transport);
/// Takes the package's function, while it is loaded.
POSTERN_API void set_join(Join* join);

/// What joins. A room further down can open packages: `src/wiring.cc` names it.
struct ClusterAccess {
  /// Null: Postern was built without. Throws PluginError where it is needed.
  Join* (*join)(bool needed);
};
extern const ClusterAccess cluster_access;
/// Returns what the package has set, or null.
Join* join_of_package();

}  // namespace postern::internal::clusters
