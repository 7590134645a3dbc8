// What is traced or run for another device than the thread's. run/ knows how; src/wiring.cc says
// so.
#pragma once
#include <functional>

#include "core/primitive.h"

namespace postern::internal {

struct Elsewhere {
  /// Calls a function with concrete tensors that are on the device, wherever these are, and has
  /// what it runs be there, as a part of the run whose site's function calls (`in_site`), else of
  /// the one that this thread drives, if any.
  Tensors (*call)(int device, const detail::TensorFunction& f, TensorSpan x, bool in_site);
  /// Does what traces and chooses for the platform of that device.
  void (*trace)(int device, const std::function<void()>& act);
};
extern const Elsewhere elsewhere;

}  // namespace postern::internal
