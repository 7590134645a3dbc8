// FFI handlers that users and libraries bring.
#pragma once
#include <string>

#include "core/primitive.h"
#include "platform/platform.h"

namespace postern::internal::blocks {

/// Who knows them. A room further down does: `src/wiring.cc` names it.
struct HandlerAccess {
  /// Makes a handler known to XLA. Throws TypeError naming target and platform when nobody has
  /// registered it.
  void (*require)(const std::string& name, const platforms::Platform& platform);
};
extern const HandlerAccess handler_access;

/// Batches an operation that knows no batch: one element after another, in a loop, with results of
/// these types. Of elements that `mask` says are not alive (empty: all are) none runs.
std::pair<Tensors, std::vector<int>> one_by_one(const Op& op, const std::vector<Type>& types,
                                                TensorSpan x, std::span<const int> axes,
                                                std::int64_t size, const Tensor& mask);

}  // namespace postern::internal::blocks
