// What a checkpoint takes: writing it, and what the program waits while it is written beside.
#include <postern/postern.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "harness.h"

namespace bench {

namespace pn = postern;
namespace fs = std::filesystem;

/// 1 GiB from a tap of a compiled program to the disk, until the disk has it. dd and the checkpoint
/// take turns, because what else the disk does changes from second to second.
void checkpoint(Report& report) {
  constexpr std::int64_t bytes = std::int64_t{1} << 30;
  constexpr double mib = 1 << 20;
  constexpr int rounds = 5;
  const fs::path folder = "bench-checkpoint-" + std::to_string(::getpid());
  const pn::Tensor x = pn::zeros(pn::type<float>({bytes / 4})).block_until_ready();
  const auto keep = pn::listen::checkpoint(folder / "kept", {.keep = 1});
  const auto f = pn::jit([&](pn::Tensor v) {
    pn::tap(v, keep);
    return pn::Tensor(0.0f);  // a result of 1 GiB would be a copy more
  });
  f.compile(x);
  const std::string dd =
      "dd if=/dev/zero of=" + (folder / "dd").string() + " bs=4M count=256 conv=fsync status=none";
  std::vector<char> from(bytes), to(bytes);
  std::vector<double> ours, disk, waited, copied;
  for (int i = 0; i < rounds; ++i) {
    fs::remove(folder / "dd");
    disk.push_back(timed([&] {
      if (std::system(dd.c_str()) != 0) throw std::runtime_error("this failed: " + dd);
    }));
    ours.push_back(timed([&] {
      waited.push_back(timed([&] { f(x).block_until_ready(); }));
      keep.wait();
    }));
    copied.push_back(timed([&] { std::memcpy(to.data(), from.data(), from.size()); }));
  }
  fs::remove_all(folder);
  const auto speed = [&](const std::vector<double>& ns) { return bytes / mib / median(ns) * 1e9; };
  report.add({"checkpoint/write", speed(ours), "MiB/s", "dd", speed(disk),
              "1 GiB from a tap until the disk has it"});
  report.add({"checkpoint/wait", median(waited) / 1e6, "ms", "memcpy", median(copied) / 1e6,
              "what the program waits: the copy"});
}

}  // namespace bench
