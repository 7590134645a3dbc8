// What the parts of the C interface share: errors as codes, handles, firings as C sees them.
#pragma once
#include <postern/c.h>
#include <postern/postern.h>

#include <string>
#include <vector>

#include "core/once.h"
#include "core/thread_end.h"

struct pn_tensor {
  postern::Tensor tensor = {};
  // Made by the first view, for all:
  mutable postern::internal::Once looked = {};
  mutable std::shared_ptr<const void> keep = {};
  mutable const void* bytes = nullptr;
};

struct pn_program {
  explicit pn_program(postern::Loaded p);
  postern::Loaded program;
  std::vector<std::string> inputs, outputs, input_names, output_names, functions, hooks;
};

struct pn_started {
  postern::Run<std::vector<postern::Tensor>> run;
};

namespace postern::internal::c {

using Operands = std::span<const AnyView>;
using Results = std::span<const AnyMutableView>;

/// A text, and a thing of the host's own that it stands for, such as an exception of another
/// language.
struct Failure {
  std::string text;
  std::shared_ptr<void> cause;
};
/// Returns the thread's last error.
Failure& last_error();
/// Returns what a host function wants its failure to say.
Failure& failure();
/// Returns a thing of the host's own, let go of by `release` (may be null), which is called in any
/// case.
std::shared_ptr<void> held(void* thing, void (*release)(void*));

/// A host function's failure, in a run.
struct HostError : Error {
  HostError(int code, Failure f)
      : Error(static_cast<ErrorCode>(code), f.text), cause(std::move(f.cause)) {}
  std::shared_ptr<void> cause;
};

/// Throws TypeError for a pointer that is not there.
void need(bool there, const char* what);
/// Returns an entry of a handle's list, as long as that; NULL beyond the last, and of no handle.
template <class Handle>
const char* at(const Handle* h, std::vector<std::string> Handle::*list, std::size_t i) {
  if (h && i < (h->*list).size()) return (h->*list)[i].c_str();
  return nullptr;
}
template <class Handle>
std::size_t count(const Handle* h, std::vector<std::string> Handle::*list) {
  if (h) return (h->*list).size();
  return 0;
}

/// Makes this the thread's last error. Returns the code.
int set_last_error(int code, std::string_view text, std::shared_ptr<void> cause = nullptr) noexcept;
int code_of(const std::exception_ptr& error) noexcept;
/// Returns the code that `act` gives, PN_OK where it gives none, or the code of what it throws,
/// whose text becomes the thread's last error.
template <class Act>
int guarded(Act act) noexcept {
  const Uncancelled here;
  try {
    if constexpr (!std::is_void_v<decltype(act())>)
      return act();
    else
      act();
    return PN_OK;
  } catch (...) {
    return code_of(std::current_exception());
  }
}

/// Does so once what may not be NULL is there.
template <class Act>
int guarded(bool there, const char* what, Act act) noexcept {
  return guarded([&] {
    need(there, what);
    return act();
  });
}

/// Returns none where it is negative.
inline std::optional<std::chrono::nanoseconds> limit_of(std::int64_t timeout_ns) {
  return timeout_ns < 0 ? std::nullopt : std::optional(std::chrono::nanoseconds(timeout_ns));
}

/// A firing as C sees it; lives as long as what it was made from.
class Firing {
 public:
  Firing(const std::string& function, const Attributes& attributes, const CallInfo& info,
         Operands operands, Results results);
  Firing(const Firing&) = delete;
  pn_firing view;

 private:
  std::string site_, attributes_;
  std::vector<pn_array> arrays_;
};

/// A thing of the host's. Once it is ours it is let go of by `release` (may be null).
struct User {
  void* const user;
  void (*const release)(void* user);
  bool is_ours = false;
  User(void* u, void (*r)(void*)) : user(u), release(r) {}
  ~User() {
    if (is_ours && release) release(user);
  }
  User(const User&) = delete;
};
/// Returns what enters a host's function under that name; keeps `user`. A hook's (`listens`) is
/// given no attributes.
Callee callee_of(std::string name, pn_function function, std::shared_ptr<const User> user,
                 bool listens = false);
/// Returns what waits in the bridge's queue.
Callee callee_of(std::string name, const pn_bridge& bridge, std::shared_ptr<const User> user,
                 bool listens = false);
/// Makes one of enter(attributes, info, operands, results).
template <class Enter>
Callee callee_of(Enter enter, bool listens) {
  if (listens)
    return [enter](const CallInfo& info, Operands operands, Results results) {
      static const Attributes none;
      enter(none, info, operands, results);
    };
  return [enter](const Attributes& attributes, const CallInfo& info, Operands operands,
                 Results results) { enter(attributes, info, operands, results); };
}

/// Returns a run's arguments; throws where one is null, or there are not as many as the program
/// takes.
std::vector<Tensor> arguments_of(const pn_program& program, const pn_tensor* const* handles,
                                 std::size_t count);

/// Throws TypeError when the array is no array of a type that holds data.
Type type_of(const pn_array& array);

}  // namespace postern::internal::c
