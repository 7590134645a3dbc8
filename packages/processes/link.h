// A way to one lane of another process and back. What is sent goes in pieces, in order, from and
// into memory of the link's own; a piece says of which run it is. So who gives up leaves nothing
// behind but whole pieces, which the other side passes over when it is past their run: nothing has
// to be cancelled or waited for.
#pragma once
#include <cstddef>
#include <memory>

#include "machine.h"
#include "spi.h"

namespace postern::internal::clusters {

class Link {
 public:
  struct Piece {
    const Head* head = nullptr;  // null: none has come
    const std::byte* data = nullptr;
  };
  virtual ~Link() = default;

  /// Returns where the data of the next piece goes, `capacity` bytes; null while there is no room.
  virtual std::byte* room() = 0;
  /// Sends what was put there.
  virtual void put(const Head& head) = 0;
  /// Returns the earliest that has come and was not taken.
  virtual Piece front() = 0;
  virtual void take() = 0;
  /// Returns whether nothing that was put needs this side any more.
  virtual bool flushed() = 0;

  const std::size_t capacity;

 protected:
  explicit Link(std::size_t bytes) : capacity(bytes) {}
};

/// Links through the machine's memory; null where that does not reach.
std::unique_ptr<Link> link_by_memory(const Machine& machine, int rank, int peer, int lane);
/// Links by messages. Its functions throw Error(unavailable) when one cannot be sent.
std::unique_ptr<Link> link_by_messages(const Transport& transport, int peer, int tag);

}  // namespace postern::internal::clusters
