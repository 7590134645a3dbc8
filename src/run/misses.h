// Why a jitted function compiles again.
#pragma once
#include <postern/detail/jit_core.h>

#include <atomic>
#include <string>
#include <typeinfo>
#include <vector>

namespace postern::internal::run {

/// Tells why a program is compiled: each time with POSTERN_LOG=compiles, and once for a function
/// that compiles for one static value after the other. One of these belongs to one function, under
/// whose lock it is used.
class Misses {
 public:
  /// Notes that `function` compiles for these arguments, which those of no program fit.
  void note(const std::string& function, const detail::Key& key);

 private:
  std::string difference(const detail::Key& key) const;

  int programs_ = 0, of_values_ = 0;
  // Of the arguments before.
  const std::type_info* pack_ = nullptr;
  std::vector<Type> types_;
  std::string structure_;
};

/// Tells what a function has captured: at level info, and once where one is large.
void tell_captures(const std::string& function, const std::vector<Tensor>& captures,
                   std::atomic<bool>& told);

}  // namespace postern::internal::run
