// Driver: the few functions of a vendor's interface (CUDA) that Postern needs, as a table, so that
// tests can put others in their place.
#pragma once
#include <postern/error.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace postern::internal::gpu {

/// Each gives 0 or the number of an error. Streams, events and contexts are the vendor's
/// handles. What takes a stream only queues.
struct Driver {
  const char* name;                                   // in errors: "CUDA"
  int (*allocate)(void** memory, std::size_t bytes);  // pinned memory of the host
  int (*free)(void* memory);
  bool (*on_host)(const void* memory);  // the host can read it where it is
  int (*copy_to_host)(void* to, const void* from, std::size_t bytes, void* stream);
  int (*copy_to_device)(void* to, const void* from, std::size_t bytes, void* stream);
  int (*fill)(void* to, unsigned char value, std::size_t bytes, void* stream);
  int (*synchronize)(void* stream);
  int (*create_event)(void** event);
  int (*record)(void* event, void* stream);
  int (*is_ready)(void* event, bool* ready);
  int (*wait)(void* event);
  int (*context_of)(void* stream, void** context);
  int (*context_of_device)(int ordinal, void** context);  // that XLA uses too
  int (*enter)(void* context);                            // makes it the thread's, until leave()
  int (*leave)();
  std::string (*describe)(int error);

  /// Throws Error: "<name> failed <what>: <its text>".
  void check(int error, std::string_view what) const {
    if (error != 0) [[unlikely]]
      throw Error(ErrorCode::internal,
                  std::string(name) + " failed " + std::string(what) + ": " + describe(error));
  }
};

/// Makes a context the thread's for a scope.
class ContextScope {
 public:
  ContextScope(const Driver& driver, void* context) : driver_(driver) {
    driver.check(driver.enter(context), "to enter its context");
  }
  ~ContextScope() { driver_.leave(); }
  ContextScope(const ContextScope&) = delete;

 private:
  const Driver& driver_;
};

}  // namespace postern::internal::gpu
