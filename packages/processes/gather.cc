// A run over processes that is no program's: two rendezvous, for lengths and for bytes.
#include <fmt/format.h>
#include <postern/error.h>

#include <functional>

#include "rendezvous.h"

namespace postern::internal::clusters {

namespace {

using Clock = std::chrono::steady_clock;

/// The rendezvous see themselves that the run is over.
class Gathering : public Watched {
 public:
  explicit Gathering(std::string who) : who_(std::move(who)) {}
  void ended_elsewhere(const std::string& /*why*/) noexcept override {}
  std::string site_now() override { return who_; }

 private:
  const std::string who_;
};

/// Process 0 gets `in[rank]` of each, the others send `out`.
void gather(JoinedCluster& cluster, std::uint64_t run, const Subject& subject,
            const std::function<bool()>& late, const Out& out, const std::vector<In>& in) {
  Rendezvous rendezvous(cluster, run, 0, subject, late);
  if (cluster.rank() == 0)
    rendezvous.exchange({}, in);
  else
    rendezvous.exchange({&out, 1}, {});
}

}  // namespace

std::vector<std::string> JoinedCluster::gather_on_first(const std::string& who,
                                                        const std::string& mine,
                                                        std::chrono::milliseconds limit) {
  const auto until = host::after(limit);
  const std::function<bool()> late = [&] { return Clock::now() > until; };
  const std::uint64_t run = claim([&](std::uint64_t) { return std::make_shared<Gathering>(who); });
  try {
    const Subject subject(who, "bytes of each process for process 0", "all");
    const auto others = static_cast<std::size_t>(rank() == 0 ? size() - 1 : 0);
    std::vector<std::uint64_t> sizes(others + 1, mine.size());
    std::vector<std::string> all(others + 1, mine);
    std::vector<In> in;
    for (std::size_t k = 1; k <= others; ++k)
      in.push_back({static_cast<int>(k), &sizes[k], sizeof sizes[k]});
    gather(*this, run, subject, late, {0, sizes.data(), sizeof sizes[0]}, in);
    in.clear();
    for (std::size_t k = 1; k <= others; ++k) {
      all[k].resize(sizes[k]);
      in.push_back({static_cast<int>(k), all[k].data(), all[k].size()});
    }
    gather(*this, run, subject, late, {0, mine.data(), mine.size()}, in);
    came_to_end(run, 1);
    if (rank() != 0) all.clear();
    return all;
  } catch (const std::exception& e) {
    const std::string why = late() ? fmt::format("{}: not all processes came within {} ms{}", who,
                                                 limit.count(), waiting())
                                   : fmt::format("{}: {}", who, e.what());
    run_failed(run, why);
    throw Error(late() ? ErrorCode::deadline_exceeded : ErrorCode::aborted, why);
  }
}

}  // namespace postern::internal::clusters
