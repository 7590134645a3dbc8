// Staging: arrays in host memory reach a run through buffers that XLA knows already.
//
// To make a buffer costs XLA more than a short program. So each lane keeps a few: over memory of
// its own, to which small arrays are copied, and over memory of arrays that runs were given, which
// the next array is often in too. An array that is seen for the first time reaches its run so. A
// buffer goes back to its lane when the run was over as soon as it had been queued, so that nothing
// reads the memory any more; else it is dropped, and the memory is kept until the run has ended.
#pragma once
#include <memory>
#include <vector>

#include "core/mutex.h"
#include "core/value.h"
#include "pjrt/client.h"
#include "pjrt/event.h"

namespace postern::internal::run {

struct Lane;

/// Bytes from which on to see an array where it is costs less than a copy.
constexpr std::size_t seen_in_place = 4096;

struct Staged {
  Type type;
  void* bytes;
  bool lent;  // the memory is of an array, and may be gone
  pjrt::Buffer buffer;
};

/// Those of a lane that no run has.
class Staging {
 public:
  /// Takes one over these bytes; without bytes, over memory of the lane's own. Null if there is
  /// none.
  std::unique_ptr<Staged> take(const Type& type, const void* bytes = nullptr);
  void give_back(std::unique_ptr<Staged> staged);

 private:
  static constexpr std::size_t most_kept = 16;
  Mutex guard_;
  std::vector<std::unique_ptr<Staged>> kept_;
};

/// Those of one call after another that are given memory, not tensors, each by its position.
class ArgumentsInPlace {
 public:
  /// Returns the bytes, of that type, as a buffer of `lane`, for a run that ends before the next
  /// call and before they are gone. Where a device has memory of its own it is a copy.
  const pjrt::Buffer& take(std::size_t position, const Type& type, const void* bytes, Lane& lane);

 private:
  const Lane* lane_ = nullptr;
  std::vector<std::unique_ptr<Staged>> list_;
};

/// Those of a run.
class StagedOperands {
 public:
  /// Returns the value on `lane`; null where that is not the way.
  pjrt::Buffer* stage(const detail::HostValue& value, Lane& lane);
  /// Settles what the run took: it has been queued, and is over, or goes on until `complete`.
  void settle(Lane& lane, const pjrt::Event& complete, bool over);

 private:
  using Held = std::vector<std::shared_ptr<const void>>;
  std::vector<std::unique_ptr<Staged>> list_;
  std::unique_ptr<Held> held_;  // memory of arrays; null: none
};

}  // namespace postern::internal::run
