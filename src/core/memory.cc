// Memory for arrays on the host.
#include <postern/error.h>

#include <algorithm>
#include <new>

#include <fmt/format.h>

#include "core/check.h"
#include "core/value.h"

namespace postern::detail {
using namespace internal;

std::shared_ptr<void> aligned_bytes(std::size_t bytes) {
  void* memory =
      ::operator new (std::max<std::size_t>(bytes, 1), std::align_val_t{64}, std::nothrow);
  if (!memory)
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("{} bytes were asked for, there is no memory for them", bytes));
  return {memory, [](void* p) { ::operator delete (p, std::align_val_t{64}); }};
}

bool are_booleans(const void* bytes, std::size_t count) {
  const auto* const b = static_cast<const unsigned char*>(bytes);
  unsigned char all = 0;
  for (std::size_t i = 0; i < count; ++i) all |= b[i];
  return all <= 1;
}

void make_booleans(void* bytes, std::size_t count) {
  auto* const b = static_cast<unsigned char*>(bytes);
  for (std::size_t i = 0; i < count; ++i) b[i] = b[i] != 0;
}

void refuse_donated(const Value& value) {
  if (!value.donated.load()) [[likely]]
    return;  // the text is made only for the error: this is on the way to each run
  throw_type_error(
      fmt::format("a tensor of type {} was donated to a program and holds no data any more",
                  to_string(value.type)));
}

}  // namespace postern::detail
