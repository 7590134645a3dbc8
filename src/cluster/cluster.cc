// The one cluster of the process, and what may be asked of it also where none is joined.
#include "cluster/cluster.h"

#include <postern/error.h>
#include <postern/sharding.h>

#include <atomic>
#include <utility>

#include "cluster/first.h"
#include "cluster/join.h"
#include "core/digest.h"

namespace postern {
using namespace internal;

Cluster cluster() {
  const clusters::Cluster& c = clusters::Cluster::get();
  return {c.rank(), c.size(), c.transport() ? c.transport()->name : ""};
}

MeshAxis::MeshAxis(std::string axis, Processes count)
    : name(std::move(axis)),
      size(count.count ? count.count : clusters::Cluster::get().size()),
      of_processes(true) {}

}  // namespace postern

namespace postern::internal::clusters {

namespace {

std::atomic<Cluster*> made{nullptr};
std::atomic<Join*> join_of{nullptr};

/// Of a Postern that was built without the package.
class Alone final : public Cluster {
 public:
  Alone() : Cluster(nullptr) {}
  std::uint64_t claim(const WatchedFor&) override { refuse(); }
  std::uint64_t meet(const Meeting&) override { refuse(); }
  void came_to_end(std::uint64_t, std::size_t) override {}
  void run_failed(std::uint64_t, const std::string&) noexcept override {}
  bool has_failed(std::uint64_t) override { return false; }
  std::string waiting() const override { return {}; }
  Store& store() override { refuse(); }
  void say_count(std::uint64_t, std::int64_t) noexcept override {}
  std::vector<std::int64_t> counts_of(std::uint64_t) override { return {}; }
  std::vector<std::string> gather_on_first(const std::string&, const std::string& mine,
                                           std::chrono::milliseconds) override {
    return {mine};
  }

 private:
  [[noreturn]] static void refuse() {
    cluster_access.join(true);
    throw Error(ErrorCode::internal, "collectives over processes: their package came too late");
  }
};

/// Null where this process is alone, as far as is known.
Cluster* of_several() {
  Cluster* const c = Cluster::joined();
  return c && c->size() > 1 ? c : nullptr;
}

}  // namespace

void set_join(Join* join) { join_of = join; }
Join* join_of_package() { return join_of.load(); }

Cluster& Cluster::get() {
  // Never destroyed: runs may end after main.
  static Cluster* const cluster = [] {
    // First the package, without which no transport may be opened: MPI ends with the process.
    Join* const join = cluster_access.join(names_transport());
    const Transport* const transport = open_transport();
    Cluster* const c = join ? join(transport) : new Alone;
    made.store(c, std::memory_order_release);
    return c;
  }();
  return *cluster;
}
Cluster* Cluster::joined() { return made.load(std::memory_order_acquire); }

int rank_now() {
  const Cluster* const c = Cluster::joined();
  return c ? c->rank() : 0;
}
int size_now() {
  const Cluster* const c = Cluster::joined();
  return c ? c->size() : 1;
}
std::uint64_t job_now() {
  const Cluster* const c = Cluster::joined();
  return c ? c->job() : 0;
}
bool has_failed(std::uint64_t run) {
  Cluster* const c = of_several();
  return c && c->has_failed(run);
}

void say_count(std::uint64_t what, std::int64_t done) noexcept {
  if (Cluster* const c = of_several()) c->say_count(what, done);
}
std::vector<std::int64_t> counts_of(std::uint64_t what) {
  Cluster* const c = of_several();
  return c ? c->counts_of(what) : std::vector<std::int64_t>();
}
std::vector<std::string> gather_on_first(const std::string& who, const std::string& mine,
                                         std::chrono::milliseconds limit) {
  Cluster& c = Cluster::get();
  return c.size() < 2 ? std::vector{mine} : c.gather_on_first(who, mine, limit);
}

std::chrono::milliseconds& Store::answer_limit() {
  static std::chrono::milliseconds limit{10'000};
  return limit;
}
Store& Store::get() { return Cluster::get().store(); }

Subject::Subject(std::string where, std::string what, std::string among)
    : place(std::move(where)),
      detail(std::move(what)),
      group(std::move(among)),
      fingerprint(fnv_1a(detail, fnv_1a(place) * 31)) {}

}  // namespace postern::internal::clusters
