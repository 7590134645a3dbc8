// A stand-in for CUDA: "device" memory is the host's, streams are queues of work that somebody has
// to run.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "platform/gpu/driver.h"

namespace postern::test {

class FakeCuda {
 public:
  static FakeCuda& get();
  /// Its table. Work on the null stream is done at once.
  static const internal::gpu::Driver& driver();

  /// Forgets streams, counts and wanted failures.
  void reset();
  /// How often the driver's function of this name was called.
  int count(const std::string& name);
  /// `after` calls of this function from now on succeed, the next one fails.
  void fail(const std::string& name, int after = 0);
  /// The device does what is queued on the stream.
  void run(void* stream);
  std::size_t queued(void* stream);
  std::size_t pinned();  // blocks
  /// From now on this memory counts as the host's.
  void put_on_host(const void* memory);

 private:
  friend struct FakeFunctions;
  int call(const std::string& name);
  void queue(void* stream, std::function<void()> work);

  std::mutex guard_;
  std::map<std::string, int> counts_, failures_;
  std::map<void*, std::deque<std::function<void()>>> streams_;
  std::set<const void*> on_host_;
  std::size_t pinned_ = 0;
};

/// Whether host functions see the memory that programs work on: not on a GPU, nor with the
/// stand-in.
bool leaves_are_in_place();

}  // namespace postern::test
