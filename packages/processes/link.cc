// Links through memory, and links by messages.
#include "link.h"

#include <fmt/format.h>
#include <postern/error.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

namespace postern::internal::clusters {

namespace {

class MemoryLink : public Link {
 public:
  MemoryLink(Channel& out, Channel& in, std::size_t piece, std::size_t stride)
      : Link(piece), out_(out), in_(in), stride_(stride) {}

  std::byte* room() override {
    if (sent_ - taken_ == Channel::slots) {
      taken_ = out_.taken.load(std::memory_order_acquire);
      if (sent_ - taken_ == Channel::slots) return nullptr;
    }
    return out_.slot(sent_, stride_).data();
  }
  void put(const Head& head) override {
    Channel::Slot& slot = out_.slot(sent_, stride_);
    slot.head = head;
    slot.count.store(++sent_, std::memory_order_release);
  }
  Piece front() override {
    Channel::Slot& slot = in_.slot(got_, stride_);
    if (slot.count.load(std::memory_order_acquire) != got_ + 1) return {};
    return {&slot.head, slot.data()};
  }
  void take() override { in_.taken.store(++got_, std::memory_order_release); }
  bool flushed() override { return true; }

 private:
  Channel &out_, &in_;
  const std::size_t stride_;
  std::uint64_t sent_ = 0, taken_ = 0, got_ = 0;
};

/// Receives wait for pieces that may come in a later run; what is sent stays until it has left.
class MessageLink : public Link {
 public:
  MessageLink(const Transport& transport, int peer, int tag)
      : Link(std::size_t{1} << 18), transport_(transport), peer_(peer), tag_(tag) {
    free_.reserve(at_a_time);
  }
  /// At the end of the process. Until its own the transport may work on the messages' memory.
  ~MessageLink() override {
    for (Message& m : incoming_) transport_.abandon(&m.request);
    for (auto* const messages : {&incoming_, &leaving_})
      for (Message& m : *messages) static_cast<void>(m.memory.release());
  }

  std::byte* room() override {
    if (!next_) {
      sweep();
      if (!free_.empty()) {
        next_ = std::move(free_.back());
        free_.pop_back();
      } else if (leaving_.size() < at_a_time) {
        next_ = make();
      }
    }
    return next_ ? next_.get() + sizeof(Head) : nullptr;
  }
  void put(const Head& head) override {
    std::memcpy(next_.get(), &head, sizeof head);
    leaving_.push_back({{}, std::move(next_)});
    Message& m = leaving_.back();
    begun(leaving_,
          transport_.send(peer_, tag_, m.memory.get(), sizeof head + head.bytes, &m.request));
  }
  Piece front() override {
    while (incoming_.size() < depth_) {
      incoming_.push_back({{}, make()});
      receive_last();
    }
    Message& m = incoming_.front();
    if (!come_) check(transport_.test(&m.request, &come_));
    if (!come_) return {};
    const auto* const head = reinterpret_cast<const Head*>(m.memory.get());
    if (head->bytes > capacity / 2) depth_ = at_a_time;  // more of the kind come
    return {head, m.memory.get() + sizeof(Head)};
  }
  void take() override {
    incoming_.push_back({{}, nullptr});
    incoming_.back().memory = std::move(incoming_.front().memory);
    incoming_.pop_front();
    come_ = false;
    receive_last();
  }
  bool flushed() override {
    sweep();
    return leaving_.empty();
  }

 private:
  static constexpr std::size_t at_a_time = 4;
  using Memory = std::unique_ptr<std::byte[]>;
  struct Message {
    Transport::Request request;
    Memory memory;
  };

  Memory make() const {
    return std::make_unique_for_overwrite<std::byte[]>(sizeof(Head) + capacity);
  }
  void check(const char* error) const {
    if (error)
      throw Error(ErrorCode::unavailable, fmt::format("messages of process {}: {}", peer_, error));
  }
  /// Has a message in its list before it is begun: from then on its memory is the transport's, also
  /// where there is none for the list.
  void begun(std::deque<Message>& list, const char* error) {
    if (error) list.pop_back();
    check(error);
  }
  void receive_last() {
    Message& m = incoming_.back();
    begun(incoming_,
          transport_.receive(peer_, tag_, m.memory.get(), sizeof(Head) + capacity, &m.request));
  }
  void sweep() {
    while (!leaving_.empty()) {
      bool through = false;
      check(transport_.test(&leaving_.front().request, &through));
      if (!through) return;
      free_.push_back(std::move(leaving_.front().memory));
      leaving_.pop_front();
    }
  }

  const Transport& transport_;
  const int peer_, tag_;
  std::size_t depth_ = 1;
  bool come_ = false;
  Memory next_;
  std::vector<Memory> free_;
  std::deque<Message> leaving_, incoming_;
};

}  // namespace

std::unique_ptr<Link> link_by_memory(const Machine& machine, int rank, int peer, int lane) {
  Channel* const out = machine.channel(rank, peer, lane);
  Channel* const in = machine.channel(peer, rank, lane);
  if (!out || !in) return nullptr;
  return std::make_unique<MemoryLink>(*out, *in, machine.piece_bytes(), machine.stride());
}

std::unique_ptr<Link> link_by_messages(const Transport& transport, int peer, int tag) {
  return std::make_unique<MessageLink>(transport, peer, tag);
}

}  // namespace postern::internal::clusters
