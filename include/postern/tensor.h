// Tensor: a value, concrete (data on a device, shared, immutable) or traced (a step of a program
// that is being written down).
//
//   const pn::Tensor x = pn::tensor<float>({{1, 2}, {3, 4}});
//   const pn::Tensor y = 2.0f * x + x[0];
//   std::vector<float> numbers = y.to_vector<float>();  // 3, 6, 7, 10
#pragma once
#include <postern/detail/api.h>
#include <postern/detail/function.h>
#include <postern/place.h>
#include <postern/type.h>
#include <postern/view.h>

#include <concepts>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <vector>

namespace postern {

namespace detail {
struct Value;
struct Access;
[[noreturn]] POSTERN_API void throw_no_memory(std::size_t elements, std::size_t width);
[[noreturn]] POSTERN_API void wrong_lists(std::size_t first, std::size_t other, Place place);
template <class T>
void lost_in_a_copy(const T&) {
  static_assert(sizeof(T) == 0,
                "postern: tensors do not change, and x[i] is a copy: in place of x[i] = y and "
                "x[i] += y write x = pn::index_set(x, i, y) and x = pn::index_add(x, i, y)");
}
template <class T>
std::vector<T> room_for(std::size_t elements) {
  try {
    return std::vector<T>(elements);
  } catch (const std::exception&) {
    throw_no_memory(elements, sizeof(T));
  }
}
}  // namespace detail

class Tensor;
class Operand;
class Index;
// Does what the operators of Tensor stand for; documented in ops.h, with the TypeError that they
// throw.
POSTERN_API Tensor add(const Operand& x, const Operand& y);
POSTERN_API Tensor subtract(const Operand& x, const Operand& y);
POSTERN_API Tensor multiply(const Operand& x, const Operand& y);
POSTERN_API Tensor divide(const Operand& x, const Operand& y);
POSTERN_API Tensor remainder(const Operand& x, const Operand& y);
POSTERN_API Tensor negative(const Operand& x);
POSTERN_API Tensor equal(const Operand& x, const Operand& y);
POSTERN_API Tensor not_equal(const Operand& x, const Operand& y);
POSTERN_API Tensor less(const Operand& x, const Operand& y);
POSTERN_API Tensor less_equal(const Operand& x, const Operand& y);
POSTERN_API Tensor greater(const Operand& x, const Operand& y);
POSTERN_API Tensor greater_equal(const Operand& x, const Operand& y);
POSTERN_API Tensor logical_and(const Operand& x, const Operand& y);
POSTERN_API Tensor logical_or(const Operand& x, const Operand& y);
POSTERN_API Tensor logical_xor(const Operand& x, const Operand& y);
POSTERN_API Tensor logical_not(const Operand& x);

/// A value of a fixed type. Copies share it. Outside `jit` and the transformations it is concrete
/// and operations run at once; inside, it may stand for a value that exists only when the program
/// runs, and then asking for its data is a TypeError.
///
/// Threads: as for every type of Postern, whatever is const may be done to one object by any number
/// of threads at once: they read, copy, pass to programs, wait for and drop one tensor without a
/// lock. What is not const (assignment, `+=`) needs the object alone. A tensor that is donated
/// while others read it is gone for those who come later; who is reading sees its values.
class Tensor {
 public:
  /// Has no value; every use but assignment and the questions about it throws TypeError.
  Tensor() = default;

  /// Refuses `x[i] = y`, which would write into a copy of the row: see index_set. Throws nothing.
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;
  ~Tensor() = default;
  void operator=(const auto& y) && { detail::lost_in_a_copy(y); }

  /// Makes a scalar (rank 0) of the number's own dtype. Unlike a plain number in an expression it
  /// is not weakly typed. Throws nothing.
  template <Element T>
  Tensor(T number) : Tensor(make_type(dtype_v<T>, {}), &number) {}

  /// Copies `type.byte_size()` row-major bytes at `data`; of pred any but 0 are true. Throws
  /// TypeError for a type that make_type refuses, and null data of a type that has some.
  POSTERN_API Tensor(const Type& type, const void* data, Place place = Place::current());

  /// Returns a copy of what a host function was shown, so that it can be kept. Throws
  /// Error(resource_exhausted) where there is no memory for it.
  template <class T>
  static Tensor copy_of(const View<T>& view) {
    return {Type{dtype_v<T>, Dims(view.dims().begin(), view.dims().end())}, view.data()};
  }
  static Tensor copy_of(const AnyView& view) { return {view.type(), view.data()}; }

  /// Returns Row-major memory of the caller used as it is; `release` is called once when nothing
  /// needs it any more (from any thread), and must not throw. XLA wants 64-byte alignment; memory
  /// with less is copied when a program needs it. Of pred, bytes other than 0 and 1 are copied at
  /// once. Throws TypeError as the constructor does, and then does not call `release`.
  ///
  ///   auto numbers = std::make_shared<std::vector<float>>(4, 0.5f);
  ///   const pn::Tensor x = pn::Tensor::borrow(pn::type<float>({4}), numbers->data(),
  ///                                           [numbers] {});  // which keeps them until then
  ///   const pn::Tensor y = pn::sum(x);  // 2
  POSTERN_API static Tensor borrow(const Type& type, const void* data,
                                   std::function<void()> release, Place place = Place::current());

  /// Returns the type and its parts. Throws TypeError when there is no value.
  POSTERN_API const Type& type(Place place = Place::current()) const;
  DType dtype(Place place = Place::current()) const { return type(place).dtype; }
  const Dims& dims(Place place = Place::current()) const { return type(place).dims; }
  std::int64_t rank(Place place = Place::current()) const { return type(place).rank(); }
  std::int64_t size(Place place = Place::current()) const { return type(place).size(place); }

  /// Returns whether there is a value, and whether it exists only when a program runs. They throw
  /// nothing.
  bool has_value() const { return value_ != nullptr; }
  POSTERN_API bool is_traced() const;  // true also for `abstract` tensors

  /// Refuses a tensor as a condition, which does not compile: it may have no value yet. Throws
  /// nothing.
  template <std::same_as<bool> B>
  explicit operator B() const {
    static_assert(sizeof(B) == 0,
                  "postern: a Tensor is no condition: in place of if (c) and c ? a : b write "
                  "pn::where(c, a, b) or pn::cond(c, f, g, x), or c.item<bool>() outside of jit; "
                  "in place of a && b and a || b write a & b and a | b");
  }

  /// Returns the number of a tensor of one element; `T` must be its dtype. Waits for it. Throws
  /// TypeError, or the error of the run that makes it.
  template <Element T>
  T item(Place place = Place::current()) const {
    T number;
    read_item(dtype_v<T>, &number, place);
    return number;
  }

  /// Returns all elements, row-major; `T` must be the dtype. Waits for them. Throws as `item` does,
  /// and Error(resource_exhausted) where there is no memory for them.
  template <Element T>
  std::vector<T> to_vector(Place place = Place::current()) const {
    if constexpr (std::is_same_v<T, bool>) {
      std::vector<unsigned char> bytes =
          detail::room_for<unsigned char>(read_size(DType::pred, place));
      read(bytes.data(), place);
      return {bytes.begin(), bytes.end()};
    } else {
      std::vector<T> values = detail::room_for<T>(read_size(dtype_v<T>, place));
      read(values.data(), place);
      return values;
    }
  }

  /// Copies `type().byte_size()` row-major bytes to `to`. Waits for them. Throws TypeError for a
  /// tensor that is empty, traced, donated or partly on other processes, or the error of the run
  /// that makes it.
  POSTERN_API void read(void* to, Place place = Place::current()) const;

  /// Waits until the data is there; throws TypeError where there is none, or the error of the run
  /// that makes it. Returns *this.
  POSTERN_API const Tensor& block_until_ready(Place place = Place::current()) const;

  /// Returns the ordinal of the device that holds the data, as in `devices()`; of the first one for
  /// data on several. 0 where there is none. Throws nothing.
  POSTERN_API int device() const;

  /// Takes it along the first axis, as in NumPy: `x[2]` and `x[-1]` are a row, `x[{1, 4}]` and
  /// `x[{1, Index::end, 2}]` some of them, and `x[i]` of integers is `take(x, i)`. For other axes
  /// see slice_axis and take. Throws TypeError for a scalar x, a row that there is not and a step
  /// below 1.
  ///
  ///   const pn::Tensor x = pn::tensor<float>({0, 10, 20, 30, 40});
  ///   const pn::Tensor last = x[-1];                      // 40
  ///   const pn::Tensor some = x[{1, pn::Index::end, 2}];  // [10 30]
  [[nodiscard]] POSTERN_API Tensor operator[](const Index& index) const;

  // Every function below throws TypeError as its like in ops.h does.

  /// Returns ~x. The error names no line: a parameter that knew it would fit no better than bool.
  [[nodiscard]] Tensor operator!() const;

  /// Returns `x += y` is `x = x + y`, whose type may be another; copies of x keep their value.
  /// `x[i] += y` does not compile: see index_add.
  Tensor& operator+=(const Operand& y) &;
  Tensor& operator-=(const Operand& y) &;
  Tensor& operator*=(const Operand& y) &;
  Tensor& operator/=(const Operand& y) &;
  Tensor& operator%=(const Operand& y) &;
  Tensor& operator&=(const Operand& y) &;
  Tensor& operator|=(const Operand& y) &;
  Tensor& operator^=(const Operand& y) &;
  void operator+=(const auto& y) && { detail::lost_in_a_copy(y); }
  void operator-=(const auto& y) && { detail::lost_in_a_copy(y); }
  void operator*=(const auto& y) && { detail::lost_in_a_copy(y); }
  void operator/=(const auto& y) && { detail::lost_in_a_copy(y); }
  void operator%=(const auto& y) && { detail::lost_in_a_copy(y); }
  void operator&=(const auto& y) && { detail::lost_in_a_copy(y); }
  void operator|=(const auto& y) && { detail::lost_in_a_copy(y); }
  void operator^=(const auto& y) && { detail::lost_in_a_copy(y); }

  /// Works elementwise, found where an operand is a Tensor; the other may be a C++ number.
  [[nodiscard]] friend Tensor operator+(const Operand& x, const Operand& y) { return add(x, y); }
  [[nodiscard]] friend Tensor operator-(const Operand& x, const Operand& y) {
    return subtract(x, y);
  }
  [[nodiscard]] friend Tensor operator*(const Operand& x, const Operand& y) {
    return multiply(x, y);
  }
  [[nodiscard]] friend Tensor operator/(const Operand& x, const Operand& y) { return divide(x, y); }
  [[nodiscard]] friend Tensor operator%(const Operand& x, const Operand& y) {
    return remainder(x, y);
  }
  [[nodiscard]] friend Tensor operator==(const Operand& x, const Operand& y) { return equal(x, y); }
  [[nodiscard]] friend Tensor operator!=(const Operand& x, const Operand& y) {
    return not_equal(x, y);
  }
  [[nodiscard]] friend Tensor operator<(const Operand& x, const Operand& y) { return less(x, y); }
  [[nodiscard]] friend Tensor operator<=(const Operand& x, const Operand& y) {
    return less_equal(x, y);
  }
  [[nodiscard]] friend Tensor operator>(const Operand& x, const Operand& y) {
    return greater(x, y);
  }
  [[nodiscard]] friend Tensor operator>=(const Operand& x, const Operand& y) {
    return greater_equal(x, y);
  }
  [[nodiscard]] friend Tensor operator&(const Operand& x, const Operand& y) {
    return logical_and(x, y);
  }
  [[nodiscard]] friend Tensor operator|(const Operand& x, const Operand& y) {
    return logical_or(x, y);
  }
  [[nodiscard]] friend Tensor operator^(const Operand& x, const Operand& y) {
    return logical_xor(x, y);
  }
  [[nodiscard]] friend Tensor operator-(const Operand& x) { return negative(x); }
  [[nodiscard]] friend Tensor operator~(const Operand& x) { return logical_not(x); }

 private:
  friend struct detail::Access;
  explicit Tensor(std::shared_ptr<const detail::Value> value) : value_(std::move(value)) {}
  POSTERN_API void read_item(DType dtype, void* to, Place place) const;
  POSTERN_API std::size_t read_size(DType dtype, Place place) const;

  std::shared_ptr<const detail::Value> value_;
};

/// Returns `tensor<float>({1, 2, 3})` is f32[3]; `tensor<float>({1, 2, 3, 4}, {2, 2})` is f32[2,2],
/// row-major, and so is `tensor<float>({{1, 2}, {3, 4}})`. With complex numbers the inner braces
/// are a number each: `tensor<std::complex<float>>({{3, 4}, {0, 1}})` is c64[2], 3+4i and i. Throws
/// TypeError when the counts differ.
[[nodiscard]] POSTERN_API Tensor make_tensor(const Type& type, const void* data,
                                             std::size_t elements, Place place = Place::current());
template <Element T>
[[nodiscard]] Tensor tensor(const std::vector<T>& values, Dims dims,
                            Place place = Place::current()) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::vector<unsigned char> bytes(values.begin(), values.end());
    return make_tensor(type<T>(std::move(dims), place), bytes.data(), bytes.size(), place);
  } else {
    return make_tensor(type<T>(std::move(dims), place), values.data(), values.size(), place);
  }
}
template <Element T>
[[nodiscard]] Tensor tensor(const std::vector<T>& values) {
  return tensor<T>(values, {static_cast<std::int64_t>(values.size())});
}
template <Element T>
[[nodiscard]] Tensor tensor(std::initializer_list<T> values, Dims dims,
                            Place place = Place::current()) {
  return make_tensor(type<T>(std::move(dims), place), values.begin(), values.size(), place);
}
template <Element T>
[[nodiscard]] Tensor tensor(std::initializer_list<T> values) {
  return make_tensor(type<T>({static_cast<std::int64_t>(values.size())}), values.begin(),
                     values.size());
}

namespace detail {
template <class T>
inline constexpr bool pair_of_numbers = dtype_of<T>() == DType::c64 || dtype_of<T>() == DType::c128;

/// Returns that of lists in a list, whose lengths must be one.
template <class Lists>
std::int64_t common_length(const Lists& lists, const Place& place) {
  const std::size_t first = lists.size() ? lists.begin()->size() : 0;
  for (const auto& list : lists)
    if (list.size() != first) wrong_lists(first, list.size(), place);
  return static_cast<std::int64_t>(first);
}
}  // namespace detail

/// Makes one of a list of rows, or of blocks of rows, that are equally long: TypeError otherwise.
template <Element T>
requires(!detail::pair_of_numbers<T>) [[nodiscard]] Tensor
    tensor(std::initializer_list<std::initializer_list<T>> rows,
           Caller caller = Caller(Place::current())) {
  std::vector<T> values;
  for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
  return tensor<T>(
      values, {static_cast<std::int64_t>(rows.size()), detail::common_length(rows, caller.place)});
}
template <Element T>
requires(!detail::pair_of_numbers<T>) [[nodiscard]] Tensor
    tensor(std::initializer_list<std::initializer_list<std::initializer_list<T>>> blocks,
           Caller caller = Caller(Place::current())) {
  if (blocks.size() == 0) return tensor<T>(std::vector<T>());  // `tensor<T>({})`
  std::vector<T> values;
  std::int64_t columns = -1;
  for (const auto& rows : blocks)
    for (const auto& row : rows) {
      const auto length = static_cast<std::int64_t>(row.size());
      if (columns >= 0 && length != columns)
        detail::wrong_lists(static_cast<std::size_t>(columns), row.size(), caller.place);
      columns = length;
      values.insert(values.end(), row.begin(), row.end());
    }
  return tensor<T>(values,
                   {static_cast<std::int64_t>(blocks.size()),
                    detail::common_length(blocks, caller.place), columns < 0 ? 0 : columns});
}

namespace detail {
using Tensors = std::vector<Tensor>;
/// A function of the leaves of containers.
using TensorFunction = Function<Tensors(std::span<const Tensor>)>;
}  // namespace detail

/// Returns a tensor of which only the type is known, for templates of results and for lowering
/// without data. Throws TypeError for a type that make_type refuses.
[[nodiscard]] POSTERN_API Tensor abstract(const Type& type, Place place = Place::current());

/// What operations take: a Tensor, or a C++ number, which is then weakly typed (`x * 2.0f` keeps
/// bf16). Remembers where it was written. No member throws.
class Operand {
 public:
  /// Takes a tensor or a number, from which it is made by itself.
  Operand(Tensor tensor, Place place = Place::current())
      : tensor_(std::move(tensor)), place_(place) {}
  template <Element T>
  Operand(T number, Place place = Place::current())
      : tensor_(weak(make_type(dtype_v<T>, {}), &number)), place_(place) {}

  /// Returns the tensor that it is or became, and where it was written.
  const Tensor& tensor() const { return tensor_; }
  const Place& place() const { return place_; }

 private:
  POSTERN_API static Tensor weak(const Type& type, const void* data);
  Tensor tensor_;
  Place place_;
};

inline Tensor Tensor::operator!() const { return logical_not(Operand(*this, Place{})); }
inline Tensor& Tensor::operator+=(const Operand& y) & {
  return *this = add(Operand(*this, y.place()), y);
}
inline Tensor& Tensor::operator-=(const Operand& y) & {
  return *this = subtract(Operand(*this, y.place()), y);
}
inline Tensor& Tensor::operator*=(const Operand& y) & {
  return *this = multiply(Operand(*this, y.place()), y);
}
inline Tensor& Tensor::operator/=(const Operand& y) & {
  return *this = divide(Operand(*this, y.place()), y);
}
inline Tensor& Tensor::operator%=(const Operand& y) & {
  return *this = remainder(Operand(*this, y.place()), y);
}
inline Tensor& Tensor::operator&=(const Operand& y) & {
  return *this = logical_and(Operand(*this, y.place()), y);
}
inline Tensor& Tensor::operator|=(const Operand& y) & {
  return *this = logical_or(Operand(*this, y.place()), y);
}
inline Tensor& Tensor::operator^=(const Operand& y) & {
  return *this = logical_xor(Operand(*this, y.place()), y);
}

/// What stands in the brackets of a tensor. Negative numbers count from the end. No member throws:
/// the brackets do.
class Index {
 public:
  static constexpr std::int64_t end = std::numeric_limits<std::int64_t>::max();

  /// Takes one row, for which there must be one.
  template <std::integral I>
  requires(!std::is_same_v<I, bool> && !std::is_same_v<I, char>)
      Index(I row, Place place = Place::current())
      : begin_(static_cast<std::int64_t>(row)), place_(place) {}
  /// Takes rows `first` to `last` - 1, each `step`-th, as far as there are such.
  Index(std::int64_t first, std::int64_t last, std::int64_t step = 1,
        Place place = Place::current())
      : begin_(first), end_(last), step_(step), range_(true), place_(place) {}
  /// Takes rows that the program knows when it runs; those that there are not are NaN (as in take).
  Index(Tensor rows, Place place = Place::current()) : rows_(std::move(rows)), place_(place) {}

 private:
  friend class Tensor;
  Tensor rows_;
  std::int64_t begin_ = 0, end_ = 0, step_ = 1;
  bool range_ = false;
  Place place_;
};

}  // namespace postern
