// Attributes: static values that go with a named host function or a block, kept in the program.
#pragma once
#include <postern/detail/api.h>
#include <postern/dtype.h>
#include <postern/place.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace postern {

/// One attribute's value.
using Attribute =
    std::variant<bool, std::int64_t, double, std::string, std::vector<bool>,
                 std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

namespace detail {
template <class T>
struct is_sequence : std::false_type {};
template <class T>
struct is_sequence<std::vector<T>> : std::true_type {};
template <class T, std::size_t n>
struct is_sequence<std::array<T, n>> : std::true_type {};

/// What attributes hold elements of a list as.
template <class E>
using KeptAs = std::conditional_t<
    std::is_same_v<E, bool>, bool,
    std::conditional_t<
        std::is_floating_point_v<E>, double,
        std::conditional_t<std::is_convertible_v<E, std::string_view>, std::string, std::int64_t>>>;

[[noreturn]] POSTERN_API void throw_attribute_number(std::uint64_t number);
[[noreturn]] POSTERN_API void throw_attribute_null();

/// Widens one number or text. Throws TypeError for what 63 bits do not hold.
template <class T>
KeptAs<T> kept(const T& value) {
  if constexpr (std::is_convertible_v<T, std::string_view>) {
    if constexpr (std::is_pointer_v<T>)
      if (!value) throw_attribute_null();
    return std::string(std::string_view(value));
  } else {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::uint64_t))
      if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        throw_attribute_number(value);
    return static_cast<KeptAs<T>>(value);
  }
}

/// Returns a value as an attribute: numbers widened, enums as integers, dtypes as their names.
template <class T>
Attribute attribute_of(const T& value) {
  if constexpr (std::is_same_v<T, Attribute>)
    return value;
  else if constexpr (std::is_same_v<T, DType>)
    return std::string(to_string(value));
  else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                     std::is_convertible_v<T, std::string_view>)
    return kept(value);
  else {
    static_assert(is_sequence<T>::value,
                  "postern: attributes are bool, numbers, enums, DType, strings, and vectors or "
                  "arrays of them");
    using E = typename T::value_type;
    std::vector<KeptAs<E>> list;
    for (const E& e : value) list.push_back(kept(e));
    return list;
  }
}

/// A character is no number, nor a text.
template <class T>
concept AttributeScalar = (std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                           std::is_convertible_v<T, std::string_view>)&&  //
                          !std::is_same_v<T, char> &&
                          !std::is_same_v<T, wchar_t> && !std::is_same_v<T, char8_t> &&
                          !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>;
template <class T>
concept AttributeValue =
    std::is_same_v<T, Attribute> || AttributeScalar<T> || is_sequence<T>::value;
}  // namespace detail

/// Attributes by name. `{{"factor", 3.0}, {"axes", std::vector{0, 1}}}`. Values are bool, numbers,
/// enums, strings, and vectors and arrays of them; a list in braces, which could as well be a text,
/// does not compile. May be read by several threads at once. No member throws unless it is said.
///
///   const pn::Attributes a = {{"factor", 3.0}, {"axes", std::vector{0, 1}}};
///   const double factor = a.get<double>("factor");
///   const auto& axes = a.get<std::vector<std::int64_t>>("axes");  // as integers are kept
class Attributes {
 public:
  struct Item {
    std::string name;
    Attribute value;
    /// Takes a name and a value: numbers are widened, enums become integers, dtypes their names.
    /// Throws TypeError for an integer that 63 bits do not hold, and for a null text.
    template <detail::AttributeValue T>
    Item(std::string key, const T& v) : name(std::move(key)), value(detail::attribute_of(v)) {}
    template <class T>
    Item(std::string key,
         std::initializer_list<T> v) = delete;  // std::vector{...} says what is meant
  };

  /// Has none.
  POSTERN_API Attributes();
  /// Takes items; of several of one name the last one counts.
  POSTERN_API Attributes(std::initializer_list<Item> items);
  // Is compiled with the library: what copies a map of variants takes a compiler
  // long, and options that hold one are copied everywhere.
  POSTERN_API Attributes(const Attributes& other);
  POSTERN_API Attributes(Attributes&& other) noexcept;
  POSTERN_API Attributes& operator=(const Attributes& other);
  POSTERN_API Attributes& operator=(Attributes&& other) noexcept;
  POSTERN_API ~Attributes();

  /// Returns the value of that name and type, one of those of Attribute; throws TypeError naming
  /// the attribute, the type asked for and the type it has, or the attributes that there are.
  template <class T>
  const T& get(std::string_view name, Place place = Place::current()) const {
    const Attribute& value = find(name, place);
    if (const T* found = std::get_if<T>(&value)) return *found;
    wrong_type(name, value, Attribute(T{}), place);
  }
  /// Returns whether there is one of that name; gives one, in place of another of that name; all of
  /// them.
  POSTERN_API bool has(std::string_view name) const;
  POSTERN_API void set(std::string name, Attribute value);
  const std::map<std::string, Attribute, std::less<>>& items() const { return items_; }
  POSTERN_API bool operator==(const Attributes& other) const;

 private:
  POSTERN_API const Attribute& find(std::string_view name, Place place) const;
  [[noreturn]] POSTERN_API static void wrong_type(std::string_view name, const Attribute& has,
                                                  const Attribute& asked, Place place);
  std::map<std::string, Attribute, std::less<>> items_;
};

/// Returns them as they print. Throws nothing.
POSTERN_API std::string to_string(const Attribute& value);        // 3, 3.5, "text", [1, 2]
POSTERN_API std::string to_string(const Attributes& attributes);  // {factor = 3.5}

}  // namespace postern
