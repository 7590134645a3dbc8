// Tensor: a value, concrete (data on a device, shared, immutable) or traced (a step of a program that is being written down).
#pragma once
#include <postern/place.h>
#include <postern/type.h>
#include <postern/view.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

namespace postern {

namespace detail {
struct Value;
struct Access;
}  // namespace detail

class Tensor;
class Operand;
// What the operators of Tensor stand for; documented in ops.h.
Tensor add(const Operand& x, const Operand& y);
Tensor subtract(const Operand& x, const Operand& y);
Tensor multiply(const Operand& x, const Operand& y);
Tensor divide(const Operand& x, const Operand& y);
Tensor remainder(const Operand& x, const Operand& y);
Tensor negative(const Operand& x);
Tensor equal(const Operand& x, const Operand& y);
Tensor not_equal(const Operand& x, const Operand& y);
Tensor less(const Operand& x, const Operand& y);
Tensor less_equal(const Operand& x, const Operand& y);
Tensor greater(const Operand& x, const Operand& y);
Tensor greater_equal(const Operand& x, const Operand& y);
Tensor logical_and(const Operand& x, const Operand& y);
Tensor logical_or(const Operand& x, const Operand& y);
Tensor logical_xor(const Operand& x, const Operand& y);
Tensor logical_not(const Operand& x);

/// A value of a fixed type. Copies share it. Outside `jit` and the transformations it is concrete and operations run at once; inside, it
/// may stand for a value that exists only when the program runs, and then asking for its data is a TypeError.
class Tensor {
 public:
  /// No value; every use but assignment throws TypeError.
  Tensor() = default;

  /// A scalar (rank 0) of the number's own dtype. Unlike a plain number in an expression it is not weakly typed.
  template <Element T>
  Tensor(T number) : Tensor(make_type(dtype_v<T>, {}), &number) {}

  /// A copy of `type.byte_size()` row-major bytes at `data`.
  Tensor(const Type& type, const void* data);

  /// A copy of what a host function was shown, so that it can be kept.
  template <class T>
  static Tensor copy_of(const View<T>& view) {
    return {Type{dtype_v<T>, Dims(view.dims().begin(), view.dims().end())}, view.data()};
  }
  static Tensor copy_of(const AnyView& view) { return {view.type(), view.data()}; }

  /// Row-major memory of the caller used as it is; `release` is called once when nothing needs it any more (from any thread).
  /// XLA wants 64-byte alignment; memory with less is copied.
  static Tensor borrow(const Type& type, const void* data, std::function<void()> release);

  const Type& type() const;
  DType dtype() const { return type().dtype; }
  const Dims& dims() const { return type().dims; }
  std::int64_t rank() const { return type().rank(); }
  std::int64_t size() const { return type().size(); }

  bool has_value() const { return value_ != nullptr; }
  bool is_traced() const;  // true also for `abstract` tensors

  /// The number of a tensor of one element; `T` must be its dtype. Waits for it. Throws TypeError, or the error of the run that makes it.
  template <Element T>
  T item(Place place = Place::current()) const {
    T number;
    read_item(dtype_v<T>, &number, place);
    return number;
  }

  /// All elements, row-major; `T` must be the dtype. Waits for them.
  template <Element T>
  std::vector<T> to_vector(Place place = Place::current()) const {
    if constexpr (std::is_same_v<T, bool>) {
      std::vector<unsigned char> bytes(read_size(DType::pred, place));
      read(bytes.data(), place);
      return {bytes.begin(), bytes.end()};
    } else {
      std::vector<T> values(read_size(dtype_v<T>, place));
      read(values.data(), place);
      return values;
    }
  }

  /// Copies `type().byte_size()` row-major bytes to `to`. Waits for them.
  void read(void* to, Place place = Place::current()) const;

  /// Waits until the data is there; throws the error of the run that makes it. Returns *this.
  const Tensor& block_until_ready(Place place = Place::current()) const;

  /// The ordinal of the device that holds the data, as in `devices()`; of the first one for data on several.
  int device() const;

  // Elementwise, found where an operand is a Tensor; the other may be a C++ number.
  friend Tensor operator+(const Operand& x, const Operand& y) { return add(x, y); }
  friend Tensor operator-(const Operand& x, const Operand& y) { return subtract(x, y); }
  friend Tensor operator*(const Operand& x, const Operand& y) { return multiply(x, y); }
  friend Tensor operator/(const Operand& x, const Operand& y) { return divide(x, y); }
  friend Tensor operator%(const Operand& x, const Operand& y) { return remainder(x, y); }
  friend Tensor operator==(const Operand& x, const Operand& y) { return equal(x, y); }
  friend Tensor operator!=(const Operand& x, const Operand& y) { return not_equal(x, y); }
  friend Tensor operator<(const Operand& x, const Operand& y) { return less(x, y); }
  friend Tensor operator<=(const Operand& x, const Operand& y) { return less_equal(x, y); }
  friend Tensor operator>(const Operand& x, const Operand& y) { return greater(x, y); }
  friend Tensor operator>=(const Operand& x, const Operand& y) { return greater_equal(x, y); }
  friend Tensor operator&(const Operand& x, const Operand& y) { return logical_and(x, y); }
  friend Tensor operator|(const Operand& x, const Operand& y) { return logical_or(x, y); }
  friend Tensor operator^(const Operand& x, const Operand& y) { return logical_xor(x, y); }
  friend Tensor operator-(const Operand& x) { return negative(x); }
  friend Tensor operator~(const Operand& x) { return logical_not(x); }
  friend Tensor operator!(const Operand& x) { return logical_not(x); }

 private:
  friend struct detail::Access;
  explicit Tensor(std::shared_ptr<const detail::Value> value) : value_(std::move(value)) {}
  void read_item(DType dtype, void* to, Place place) const;
  std::size_t read_size(DType dtype, Place place) const;

  std::shared_ptr<const detail::Value> value_;
};

/// `tensor<float>({1, 2, 3})` is f32[3]; `tensor<float>({1, 2, 3, 4}, {2, 2})` is f32[2,2], row-major. Throws TypeError when the counts
/// differ.
Tensor make_tensor(const Type& type, const void* data, std::size_t elements);
template <Element T>
Tensor tensor(const std::vector<T>& values, Dims dims) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::vector<unsigned char> bytes(values.begin(), values.end());
    return make_tensor(type<T>(std::move(dims)), bytes.data(), bytes.size());
  } else {
    return make_tensor(type<T>(std::move(dims)), values.data(), values.size());
  }
}
template <Element T>
Tensor tensor(const std::vector<T>& values) {
  return tensor<T>(values, {static_cast<std::int64_t>(values.size())});
}
template <Element T>
Tensor tensor(std::initializer_list<T> values, Dims dims) {
  return make_tensor(type<T>(std::move(dims)), values.begin(), values.size());
}
template <Element T>
Tensor tensor(std::initializer_list<T> values) {
  return make_tensor(type<T>({static_cast<std::int64_t>(values.size())}), values.begin(), values.size());
}

/// A tensor of which only the type is known, for templates of results and for lowering without data.
Tensor abstract(const Type& type);

/// What operations take: a Tensor, or a C++ number, which is then weakly typed (`x * 2.0f` keeps bf16). Remembers where it was written.
class Operand {
 public:
  Operand(Tensor tensor, Place place = Place::current()) : tensor_(std::move(tensor)), place_(place) {}
  template <Element T>
  Operand(T number, Place place = Place::current()) : tensor_(weak(make_type(dtype_v<T>, {}), &number)), place_(place) {}

  const Tensor& tensor() const { return tensor_; }
  const Place& place() const { return place_; }

 private:
  static Tensor weak(const Type& type, const void* data);
  Tensor tensor_;
  Place place_;
};

}  // namespace postern
