// SmallVector: elements on the stack while they are few.
#pragma once
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

namespace postern::detail {

/// A list that takes no allocation up to `few` elements.
template <class T, std::size_t few>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> &&
                alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

 public:
  SmallVector() = default;
  /// Leaves the elements unset.
  explicit SmallVector(std::size_t size) { resize(size); }
  SmallVector(const SmallVector&) = delete;
  SmallVector& operator=(const SmallVector&) = delete;

  /// Resizes; elements that come to it are not set.
  void resize(std::size_t size) {
    if (size > capacity_) grow(size);
    size_ = size;
  }
  void push_back(T element) {  // a copy, since it may be one of ours
    if (size_ == capacity_) grow(2 * size_);
    data_[size_++] = element;
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  void grow(std::size_t capacity) {
    auto more = std::make_unique_for_overwrite<std::byte[]>(capacity * sizeof(T));
    if (size_ > 0) std::memcpy(more.get(), data_, size_ * sizeof(T));
    large_ = std::move(more);
    data_ = reinterpret_cast<T*>(large_.get());
    capacity_ = capacity;
  }

  alignas(T) std::byte small_[few * sizeof(T)];
  std::unique_ptr<std::byte[]> large_;
  T* data_ = reinterpret_cast<T*>(small_);
  std::size_t size_ = 0, capacity_ = few;
};

}  // namespace postern::detail
