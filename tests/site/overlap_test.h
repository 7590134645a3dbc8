// Where the functions of the tests of overlapping calls meet and are held up, and one that fails.
#pragma once
#include <condition_variable>
#include <mutex>

#include "support.h"

namespace postern::test {

/// Where functions meet: each waits until so many are inside, or for too long.
class Meeting {
 public:
  explicit Meeting(int wanted) : wanted_(wanted) {}
  bool come() {
    std::unique_lock lock(guard_);
    ++inside_;
    all_.notify_all();
    return all_.wait_for(lock, 20s, [&] { return inside_ >= wanted_; });
  }

 private:
  const int wanted_;
  int inside_ = 0;
  std::mutex guard_;
  std::condition_variable all_;
};

/// A door that stays shut until it is opened.
class Door {
 public:
  void open() {
    std::scoped_lock lock(guard_);
    open_ = true;
    opened_.notify_all();
  }
  bool pass() {
    std::unique_lock lock(guard_);
    return opened_.wait_for(lock, 20s, [&] { return open_; });
  }

 private:
  std::mutex guard_;
  std::condition_variable opened_;
  bool open_ = false;
};

/// A call of a function that fails.
inline Tensor broken(const Tensor& x) {
  return wait(start_call(
      {.name = "broken"}, x.type(), [](float) -> float { throw std::runtime_error("no data"); },
      x));
}

}  // namespace postern::test
