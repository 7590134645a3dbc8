// Process 0 gives up a run with pieces of long arrays under way, and ends. Process 1 calls that run
// later, which has failed, and one more, which process 0 never comes to. Nothing hangs or aborts.
#include <postern/postern.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace pn = postern;
using namespace std::chrono_literals;

namespace {

/// The one that it has joined may be named again, by who did not know.
bool names_its_cluster() {
  pn::configure({.cluster = std::getenv("POSTERN_CLUSTER")});
  try {
    pn::configure({.cluster = "another"});
  } catch (const pn::Error&) {
    return true;
  }
  return false;
}

}  // namespace

int main() {
  const int rank = pn::cluster().rank;
  if (!names_its_cluster()) return 1;
  const auto total = pn::jit(pn::shard_map([](pn::Tensor v) { return pn::psum(v, "host"); },
                                           pn::Mesh({{"host", pn::processes}})));
  const pn::Tensor x = pn::ones(pn::type<float>({1 << 20}));
  if (total(x).to_vector<float>()[0] != 2.0f) return 2;
  if (rank == 1) std::this_thread::sleep_for(2s);
  const auto failure_of = [&](std::chrono::milliseconds deadline) {
    try {
      auto run = total.start_with({.deadline = deadline}, x);
      run.wait();
    } catch (const pn::CallbackError& e) {
      std::printf("process %d: %s\n", rank, e.what());
      return std::string(e.what());
    }
    return std::string();
  };
  const auto says = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  if (rank == 0) return says(failure_of(300ms), "deadline passed") ? 0 : 3;
  if (!says(failure_of(60s), "failed on process 0")) return 4;
  return says(failure_of(60s), "process 0 has left the cluster") ? 0 : 5;
}
