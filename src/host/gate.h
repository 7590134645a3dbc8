// Gate: what functions of the user's are entered through, which whoever turns them off can close,
// and wait at until nobody is inside.
#pragma once
#include <cstdint>
#include <vector>

#include "core/mutex.h"
#include "core/scoped.h"
#include "host/waits.h"

namespace postern::internal::host {

/// Counts the threads that are inside a function, until it is closed.
class Gate {
 public:
  /// A thread inside; it is false when the gate is closed.
  class Entry {
   public:
    explicit Entry(Gate& gate);
    ~Entry();
    Entry(const Entry&) = delete;
    explicit operator bool() const { return open_; }

   private:
    friend class Gate;
    Gate& gate_;
    Entry* const outer_;
    bool open_ = false;
  };

  /// Closes it: nobody comes in any more. `waits`: for those that are inside, but where the calling
  /// thread is one of them, or they wait for it in their turn.
  void close(bool waits) noexcept;

  /// Returns the innermost that the calling thread is inside of; null: none.
  static Entry* here() { return innermost; }
  /// Has the calling thread, which helps another, be inside of the same ones.
  class Scope : Scoped<Entry*> {
   public:
    explicit Scope(Entry* of_other) : Scoped(innermost, of_other) {}
  };

  /// Adds those that the calling thread is inside of.
  static void add_surrounding(std::vector<RunName>& names);

 private:
  static constinit thread_local Entry* innermost;
  static std::uint64_t next();
  const std::uint64_t number_ = next();  // of the process
  Mutex guard_;
  Condition left_;
  int inside_ = 0;
  bool closed_ = false;
};

}  // namespace postern::internal::host
