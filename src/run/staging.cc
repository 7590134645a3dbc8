// The buffers that a lane keeps: which array may use which of them, and when it is given back.
#include "run/staging.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "run/runtime.h"

namespace postern::internal::run {

std::unique_ptr<Staged> Staging::take(const Type& type, const void* bytes) {
  const std::scoped_lock lock(guard_);
  const auto found = std::ranges::find_if(kept_, [&](const std::unique_ptr<Staged>& s) {
    const bool is_wanted = bytes ? s->lent && s->bytes == bytes : !s->lent;
    return is_wanted && s->type == type;
  });
  if (found == kept_.end()) return nullptr;
  std::unique_ptr<Staged> out = std::move(*found);
  kept_.erase(found);
  return out;
}

void Staging::give_back(std::unique_ptr<Staged> staged) {
  std::unique_ptr<Staged> oldest;  // goes outside of the lock
  const std::scoped_lock lock(guard_);
  if (kept_.size() == most_kept) {
    oldest = std::move(kept_.front());
    kept_.erase(kept_.begin());
  }
  kept_.push_back(std::move(staged));
}

namespace {

constexpr std::size_t most_copied = 16384;  // bytes that take less time than a new buffer

bool is_aligned(const void* bytes) { return reinterpret_cast<std::uintptr_t>(bytes) % 64 == 0; }

std::unique_ptr<Staged> staged_over(void* bytes, bool lent, const Type& type, const Lane& lane,
                                    std::shared_ptr<const void> keep = {}) {
  return std::unique_ptr<Staged>(new Staged{
      type, bytes, lent,
      lane.made_by().view_of_device(bytes, type.dtype, type.dims, lane.handle, std::move(keep))});
}

std::unique_ptr<Staged> with_memory(const Type& type, const Lane& lane) {
  const std::shared_ptr<void> memory = detail::aligned_bytes(type.byte_size());
  return staged_over(memory.get(), false, type, lane, memory);
}

/// Copies, and makes what is true 1: a caller's bytes of pred may be any.
void copy_in(const Type& type, const void* from, void* to) {
  const std::size_t size = type.byte_size();
  if (type.dtype != DType::pred) {
    std::memcpy(to, from, size);
    return;
  }
  const auto* const bytes = static_cast<const unsigned char*>(from);
  std::transform(bytes, bytes + size, static_cast<unsigned char*>(to),
                 [](unsigned char b) { return static_cast<unsigned char>(b != 0); });
}

}  // namespace

const pjrt::Buffer& ArgumentsInPlace::take(std::size_t position, const Type& type,
                                           const void* bytes, Lane& lane) {
  if (lane_ != &lane) list_.clear();
  lane_ = &lane;
  if (list_.size() <= position) list_.resize(position + 1);
  std::unique_ptr<Staged>& staged = list_[position];
  const std::size_t size = type.byte_size();
  if (size == 0 || is_packed(type.dtype) || !lane.platform().on_host) {
    std::shared_ptr<void> clean;  // a caller's bytes of pred may be any
    if (type.dtype == DType::pred && !detail::are_booleans(bytes, size)) {
      clean = detail::aligned_bytes(size);
      copy_in(type, bytes, clean.get());
      bytes = clean.get();
    }
    staged.reset(
        new Staged{type, nullptr, true,
                   lane.made_by().buffer_from_host(bytes, type.dtype, type.dims, lane.handle)});
  } else if (size >= seen_in_place && is_aligned(bytes) && type.dtype != DType::pred) {
    if (!staged || staged->bytes != bytes)
      staged = staged_over(const_cast<void*>(bytes), true, type, lane);
  } else {
    if (!staged || staged->lent) staged = with_memory(type, lane);
    copy_in(type, bytes, staged->bytes);
  }
  return staged->buffer;
}

pjrt::Buffer* StagedOperands::stage(const detail::HostValue& value, Lane& lane) {
  const Type& type = value.type;
  const std::size_t size = type.byte_size();
  const bool in_place = size >= seen_in_place && is_aligned(value.data.get());
  if (size == 0 || (!in_place && size > most_copied)) return nullptr;
  if (is_packed(type.dtype) || !lane.platform().on_host) return nullptr;
  // What comes again is worth a buffer of its own.
  if (value.was_staged.exchange(true, std::memory_order_relaxed)) return nullptr;
  std::unique_ptr<Staged> staged;
  if (in_place) {
    void* const bytes = const_cast<void*>(value.data.get());
    if (!held_) held_ = std::make_unique<Held>();
    held_->push_back(value.data);
    staged = lane.staging.take(type, bytes);
    if (!staged) staged = staged_over(bytes, true, type, lane);
  } else {
    staged = lane.staging.take(type);
    if (!staged) staged = with_memory(type, lane);
    std::memcpy(staged->bytes, value.data.get(), size);
  }
  list_.push_back(std::move(staged));
  return &list_.back()->buffer;
}

void StagedOperands::settle(Lane& lane, const pjrt::Event& complete, bool over) {
  if (over) {
    for (std::unique_ptr<Staged>& s : list_) lane.staging.give_back(std::move(s));
  } else if (held_) {  // the event frees it, whatever fails from here on
    complete.surely_on_ready(
        [](void* user, const pjrt::Failure*) noexcept { delete static_cast<Held*>(user); },
        held_.release());
  }
  list_.clear();
}

}  // namespace postern::internal::run
