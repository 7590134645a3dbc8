// Host views: what a host function sees of a tensor. Row-major and contiguous, whatever layout XLA
// chose.
#pragma once
#include <postern/detail/api.h>
#include <postern/type.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace postern {

/// A view of a tensor's elements, `T` const for operands. It is valid until the function returns;
/// `data()` is never null, also for empty arrays. No member throws.
///
///   auto f = [](pn::View<const float> m) {  // of a matrix
///     float trace = 0;
///     for (std::int64_t i = 0; i < std::min(m.dims()[0], m.dims()[1]); ++i) trace += m(i, i);
///     return trace;
///   };
///   const pn::Tensor x = pn::tensor<float>({{1, 2}, {3, 4}});
///   const pn::Tensor y = pn::call(pn::type<float>(), f, x);  // 5
template <class T>
class View {
 public:
  /// Shows row-major memory, which it does not keep.
  View(T* data, const std::int64_t* dims, std::size_t rank, std::int64_t size)
      : data_(data), dims_(dims), rank_(rank), size_(size) {}

  /// Returns the extents; the elements in row-major order, by their number there. Indices are not
  /// checked.
  std::int64_t size() const { return size_; }
  std::int64_t rank() const { return static_cast<std::int64_t>(rank_); }
  std::span<const std::int64_t> dims() const { return {dims_, rank_}; }
  T* data() const { return data_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  std::span<T> span() const { return {data_, static_cast<std::size_t>(size_)}; }
  T& operator[](std::int64_t flat) const { return data_[flat]; }

  /// Takes a multi-index: one integer for each axis. Not checked.
  template <class... I>
  requires(sizeof...(I) > 1) T& operator()(I... index) const {
    std::int64_t flat = 0;
    std::size_t axis = 0;
    ((flat = flat * dims_[axis++] + static_cast<std::int64_t>(index)), ...);
    return data_[flat];
  }
  T& operator()(std::int64_t index) const { return data_[index]; }
  T& operator()() const { return data_[0]; }

 private:
  T* data_;
  const std::int64_t* dims_;
  std::size_t rank_;
  std::int64_t size_;
};

namespace detail {
[[noreturn]] POSTERN_API void wrong_view(DType has, DType asked, Place place);
}

/// A view whose element type is known at run time only. `Byte` is const std::byte for operands. No
/// member throws but `as`.
template <class Byte>
class BasicAnyView {
  template <class T>
  using Like = std::conditional_t<std::is_const_v<Byte>, const T, T>;

 public:
  /// Shows row-major memory, which it does not keep.
  BasicAnyView(DType dtype, Byte* data, const std::int64_t* dims, std::size_t rank,
               std::int64_t size)
      : data_(data), dims_(dims), rank_(rank), size_(size), dtype_(dtype) {}

  /// Returns the type and its parts, and the first byte.
  DType dtype() const { return dtype_; }
  Type type() const { return {dtype_, Dims(dims_, dims_ + rank_)}; }
  std::int64_t size() const { return size_; }
  std::int64_t rank() const { return static_cast<std::int64_t>(rank_); }
  std::size_t byte_size() const { return static_cast<std::size_t>(size_) * byte_width(dtype_); }
  std::span<const std::int64_t> dims() const { return {dims_, rank_}; }
  Byte* data() const { return data_; }

  /// Returns the same elements as `View<const T>` (or `View<T>`); throws TypeError when the dtype
  /// is another.
  template <Element T>
  View<Like<T>> as(Place place = Place::current()) const {
    if (dtype_ != dtype_v<T>) detail::wrong_view(dtype_, dtype_v<T>, place);
    return {reinterpret_cast<Like<T>*>(data_), dims_, rank_, size_};
  }

 private:
  Byte* data_;
  const std::int64_t* dims_;
  std::size_t rank_;
  std::int64_t size_;
  DType dtype_;
};
using AnyView = BasicAnyView<const std::byte>;
using AnyMutableView = BasicAnyView<std::byte>;

/// A host array with extents, for host functions that return by value. `data` is row-major.
template <Element T>
struct Array {
  Dims dims;
  std::vector<T> data;
};

}  // namespace postern
