// What the parts of the C interface share: errors as codes, handles, firings as C sees them.
#pragma once
#include <postern/c.h>
#include <postern/postern.h>

#include <string>
#include <vector>

struct pn_tensor {
  postern::Tensor tensor;
  mutable std::shared_ptr<const void> bytes;  // once it was looked at
};

namespace postern::c {

/// The thread's last error.
std::string& last_error();
/// What a host function wants its failure to say.
std::string& failure_text();

/// PN_OK, or the code of what `act` throws, whose text becomes the thread's last error.
template <class Act>
int guarded(Act act) noexcept;
int refuse(int code, std::string text) noexcept;
int code_of(const std::exception_ptr& error) noexcept;

template <class Act>
int guarded(Act act) noexcept {
  try {
    return act();
  } catch (...) {
    return code_of(std::current_exception());
  }
}

/// A firing as C sees it; lives as long as what it was made from.
class Firing {
 public:
  Firing(const std::string& function, const Attributes& attributes, const CallInfo& info, std::span<const AnyView> operands,
         std::span<const AnyMutableView> results);
  Firing(const Firing&) = delete;
  pn_firing view;

 private:
  std::string site_, attributes_;
  std::vector<pn_array> arrays_;
};

/// Throws TypeError when the array is no array of a type that holds data.
Type type_of(const pn_array& array);

}  // namespace postern::c
