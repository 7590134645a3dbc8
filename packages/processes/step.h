// One collective under way on a device: what all kinds of them work on.
#pragma once
#include <cstring>

#include "pieces.h"
#include "rendezvous.h"

namespace postern::internal::clusters {

struct Step {
  const Collective& c;
  const Collective::Group& group;
  const Type& type;
  const std::byte* x;
  std::byte* y;
  Rendezvous& rendezvous;
  std::int32_t device = 0;  // its number, of `relay`
  std::size_t n = group.ranks.size(), me = size_of(group.place), bytes = type.byte_size();
};

/// Copies; arrays may be of no bytes, and then have no address.
inline void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
inline void clear(std::byte* to, std::size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

/// Runs collectives that have a root, and relay (rooted.cc).
void run_rooted(const Step& step);

}  // namespace postern::internal::clusters
