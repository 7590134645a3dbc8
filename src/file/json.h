// JSON of files: values that are not cut to fit, types and texts.
#pragma once
#include <postern/detail/api.h>
#include <postern/type.h>
#include <nlohmann/json.hpp>

#include <concepts>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"

namespace postern::internal::file {

using Json = nlohmann::ordered_json;

/// Returns a value of a file, or a list of such: whole numbers are not cut to fit, as the library
/// does it.
template <class T, class J>
T exactly(const J& json) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    bool fits = false;
    if (json.is_number_unsigned())
      fits = std::in_range<T>(json.template get<std::uint64_t>());
    else if (json.is_number_integer())
      fits = std::in_range<T>(json.template get<std::int64_t>());
    check(fits, "{} is no whole number in range", json.dump());
  } else if constexpr (requires(T list) {
                         list.push_back(exactly<typename T::value_type>(json));
                       } &&
                       !std::is_same_v<T, std::string>) {
    check(json.is_array(), "a list was to come");
    T out;
    for (const J& each : json) out.push_back(exactly<typename T::value_type>(each));
    return out;
  }
  return json.template get<T>();
}

/// Returns its text. Throws TypeError for what is no UTF-8, which `what` may be: "save: a name".
POSTERN_API std::string text_of(const Json& json, std::string_view what);

/// Parses "f32[2,3]". Throws TypeError for anything that to_string(Type) does not write.
POSTERN_API Type parse_type(std::string_view text);

}  // namespace postern::internal::file
