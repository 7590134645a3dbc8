// SmallVector: elements on the stack while they are few.
#pragma once
#include <cstddef>
#include <memory>
#include <type_traits>

namespace postern {

/// A list of a size that is known when it is needed; up to `few` elements take no allocation. The
/// elements are not set.
template <class T, std::size_t few>
class SmallVector {
  static_assert(std::is_trivial_v<T>);

 public:
  SmallVector() = default;
  explicit SmallVector(std::size_t size) { resize(size); }
  SmallVector(const SmallVector&) = delete;
  SmallVector& operator=(const SmallVector&) = delete;

  /// Forgets the elements.
  void resize(std::size_t size) {
    if (size > few) large_ = std::make_unique_for_overwrite<T[]>(size);
    data_ = size > few ? large_.get() : small_;
    size_ = size;
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
  T small_[few];
  std::unique_ptr<T[]> large_;
  T* data_ = small_;
  std::size_t size_ = 0;
};

}  // namespace postern
