// Element types and tensor types: names, sizes, kinds.
#include <postern/type.h>
#include <postern/view.h>

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "core/enum.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/text.h"
#include "core/value.h"

namespace postern {
using namespace internal;

namespace {

enum class Range : std::uint8_t { pred, integer, natural, real, complex, none };
struct DTypeRow {
  const char* name;
  std::uint8_t bytes;  // on the host
  Range range;
};
constexpr DTypeRow rows[dtype_count] = {
    {"pred", 1, Range::pred},       {"s2", 1, Range::integer},
    {"s4", 1, Range::integer},      {"s8", 1, Range::integer},
    {"s16", 2, Range::integer},     {"s32", 4, Range::integer},
    {"s64", 8, Range::integer},     {"u2", 1, Range::natural},
    {"u4", 1, Range::natural},      {"u8", 1, Range::natural},
    {"u16", 2, Range::natural},     {"u32", 4, Range::natural},
    {"u64", 8, Range::natural},     {"f16", 2, Range::real},
    {"bf16", 2, Range::real},       {"f32", 4, Range::real},
    {"f64", 8, Range::real},        {"c64", 8, Range::complex},
    {"c128", 16, Range::complex},   {"f8e5m2", 1, Range::real},
    {"f8e4m3fn", 1, Range::real},   {"f8e4m3b11fnuz", 1, Range::real},
    {"f8e5m2fnuz", 1, Range::real}, {"f8e4m3fnuz", 1, Range::real},
    {"f8e4m3", 1, Range::real},     {"f8e3m4", 1, Range::real},
    {"f8e8m0fnu", 1, Range::real},  {"f4e2m1fn", 1, Range::real},
    {"token", 0, Range::none}};

constexpr DType last_dtype = static_cast<DType>(dtype_count - 1);

const DTypeRow& row(DType dtype) {
  if (dtype > last_dtype) [[unlikely]]
    check_enum("DType", dtype, last_dtype);
  return rows[static_cast<int>(dtype)];
}

}  // namespace

std::string_view to_string(DType dtype) {
  if (dtype > last_dtype) return "no dtype";  // errors need a text of any
  return row(dtype).name;
}
std::size_t byte_width(DType dtype) { return row(dtype).bytes; }
int bit_width(DType dtype) {
  switch (dtype) {
    case DType::s2:
    case DType::u2: return 2;
    case DType::s4:
    case DType::u4:
    case DType::f4e2m1fn: return 4;
    default: return 8 * row(dtype).bytes;
  }
}
bool is_signed(DType dtype) { return row(dtype).range == Range::integer; }
bool is_unsigned(DType dtype) { return row(dtype).range == Range::natural; }
bool is_integer(DType dtype) { return is_signed(dtype) || is_unsigned(dtype); }
bool is_float(DType dtype) { return row(dtype).range == Range::real; }
bool is_complex(DType dtype) { return row(dtype).range == Range::complex; }
bool is_differentiable(DType dtype) { return is_float(dtype) || is_complex(dtype); }
DType real_dtype(DType dtype) {
  if (dtype == DType::c64) return DType::f32;
  if (dtype == DType::c128) return DType::f64;
  return dtype;
}

namespace {

/// An open extent is this number plus the place of its name among the names.
constexpr std::int64_t first_open = std::numeric_limits<std::int64_t>::min() / 2;
struct OpenNames {
  Mutex guard;
  std::vector<std::string> all;
};
OpenNames& open_names() { return never_destroyed<OpenNames>(); }

/// Returns how many of `what` a type has, `of_each` element. Throws TypeError beyond 63 bits,
/// beside an extent of 0, too: XLA multiplies the others in any order.
std::int64_t count_of(const Type& type, std::size_t of_each, const char* what, Place place) {
  auto count = static_cast<std::int64_t>(of_each);
  bool is_empty = false;
  for (std::int64_t d : type.dims) {
    is_empty = is_empty || d == 0;
    if (d < 0) [[unlikely]] {
      PlaceScope at(place);
      throw_type_error(fmt::format("a tensor of type {} has no number of {}: an extent is open",
                                   to_string(type), what));
    }
    if (d != 0 && __builtin_mul_overflow(count, d, &count)) [[unlikely]] {
      PlaceScope at(place);
      throw_type_error(
          fmt::format("a tensor of type {} has more {} than 63 bits count", to_string(type), what));
    }
  }
  return is_empty ? 0 : count;
}

}  // namespace

std::int64_t Type::size(Place place) const { return count_of(*this, 1, "elements", place); }

std::size_t Type::byte_size(Place place) const {
  return static_cast<std::size_t>(count_of(*this, byte_width(dtype), "bytes", place));
}

namespace internal {

bool is_open(std::int64_t extent) {
  if (extent >= 0) [[likely]]  // every type is asked: no lock for those that have none
    return false;
  OpenNames& names = open_names();
  std::scoped_lock lock(names.guard);
  return extent >= first_open && extent < first_open + std::ssize(names.all);
}

std::string open_name(std::int64_t extent) {
  OpenNames& names = open_names();
  std::scoped_lock lock(names.guard);
  return names.all.at(static_cast<std::size_t>(extent - first_open));
}

void check_type(const Type& type) {
  check_enum("DType", type.dtype, last_dtype);
  check(type.dtype != DType::token, "type: a token holds no data");
  check(type.rank() <= max_rank, "type: a tensor has at most {} axes, got {}", max_rank,
        type.rank());
  check(std::ranges::none_of(type.dims, is_open),
        "type: {} has a size that is open, which `lower` alone takes, of abstract arguments",
        to_string(type));
  if (std::ranges::any_of(type.dims, [](std::int64_t d) { return d < 0; }))
    throw_type_error(fmt::format("type: every extent must be 0 or more, got {}", to_string(type)));
  static_cast<void>(type.byte_size());  // throws where it cannot be counted
}

}  // namespace internal

Type make_type(DType dtype, Dims dims, Place place) {
  PlaceScope at(place);
  Type type{dtype, std::move(dims), false};
  Type closed = type;  // open extents are fine: they are checked as 1
  std::ranges::replace_if(closed.dims, is_open, 1);
  check_type(closed);
  return type;
}

std::int64_t any(const char* name, Place place) {
  PlaceScope at(place);
  const std::string_view text = name;
  check(is_name(text),
        "any: a size's name must be letters, digits and '_', no digit first; got '{}'", text);
  OpenNames& names = open_names();
  std::scoped_lock lock(names.guard);
  const auto found = std::ranges::find(names.all, text);
  const auto index = found - names.all.begin();
  if (found == names.all.end()) names.all.emplace_back(text);
  return first_open + index;
}

std::string dims_to_string(std::span<const std::int64_t> dims) {
  if (std::ranges::none_of(dims, is_open)) return fmt::format("[{}]", fmt::join(dims, ","));
  std::vector<std::string> words;
  for (const std::int64_t d : dims) {
    words.push_back(std::to_string(d));
    if (is_open(d)) words.back() = open_name(d);
  }
  return fmt::format("[{}]", fmt::join(words, ","));
}
std::string to_string(const Type& type) {
  return std::string(to_string(type.dtype)) + dims_to_string(type.dims);
}
std::string to_string(std::span<const Type> types) {
  Separator comma;
  std::string text = "(";
  for (const Type& t : types) {
    text += comma();
    text += to_string(t);
  }
  return text + ")";
}

void detail::wrong_view(DType has, DType asked, Place place) {
  PlaceScope at(place);
  throw_type_error(fmt::format("as<{}>: the view holds {}", to_string(asked), to_string(has)));
}

}  // namespace postern
