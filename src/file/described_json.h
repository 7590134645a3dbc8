// Described structs as JSON: each kept field under its name, and no others.
#pragma once
#include <postern/error.h>

#include <iosfwd>
#include <string>
#include <variant>
#include <vector>

#include "core/described.h"
#include "file/site_json.h"

namespace postern::internal::file {

// Values whose type the file says. Doubles are text, which keeps infinities and every bit.
template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<std::vector<T>> = true;

template <class T>
std::string kind_of_value() {
  if constexpr (is_list<T>) {
    return kind_of_value<typename T::value_type>() + "s";
  } else if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return "int64";
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return "uint64";
  } else if constexpr (std::is_same_v<T, double>) {
    return "double";
  } else {
    static_assert(std::is_same_v<T, std::string>, "a value's type must have a word in files");
    return "string";
  }
}
template <class T>
Json value_json(const T& v) {
  if constexpr (std::is_same_v<T, double>) {
    return number_text(v);
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    Json list = Json::array();
    for (const double d : v) list.push_back(number_text(d));
    return list;
  } else {
    return v;
  }
}
template <class T>
T value_from(const Json& json) {
  if constexpr (std::is_same_v<T, double>) {
    return number_from(json.get<std::string>());
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    std::vector<double> list;
    for (const Json& d : json) list.push_back(number_from(d.get<std::string>()));
    return list;
  } else {
    return exactly<T>(json);
  }
}

// Returns what a field looks like in a file: words stand for enums, null for what is not there.
Json written(std::ostream* stream);
Json written(const Place& v);
inline Json written(std::chrono::nanoseconds v) { return v.count(); }
inline Json written(const std::shared_ptr<Switch>& v) { return v != nullptr; }
inline Json written(const Type& v) { return to_string(v); }
inline Json written(const P& v) { return v.parts(); }
template <class T>
Json written(const T& v) {
  return Json(v);
}
/// Writes a number or text, or a list of them, as an object: under the word for its type is what it
/// is.
template <class... T>
Json written(const std::variant<T...>& v) {
  Json out = Json::object();
  std::visit([&]<class One>(const One& one) { out[kind_of_value<One>()] = value_json(one); }, v);
  return out;
}
template <HasWords E>
Json written(const E& v) {
  return word_of(v);
}
template <class T>
Json written(const std::optional<T>& v) {
  return v ? written(*v) : Json();
}
template <class T>
Json written(const std::shared_ptr<const T>& v) {
  return v ? written(*v) : Json();
}

// Reads a field back. Throws TypeErrors or JSON's exceptions for what `written` does not write.
void read(const Json& json, std::ostream*& stream);
void read(const Json& json, Place& v);
void read(const Json& json, std::chrono::nanoseconds& v);
inline void read(const Json& json, std::shared_ptr<Switch>& v) {
  if (json.get<bool>()) v = std::make_shared<Switch>();
}
inline void read(const Json& json, Type& v) { v = parse_type(json.get<std::string>()); }
inline void read(const Json& json, Attributes& v) { v = attributes_from(json); }
inline void read(const Json& json, std::optional<Sharding>& v) {
  if (!json.is_null()) v = sharding_from(json);
}
inline void read(const Json& json, std::shared_ptr<const Mesh>& v) {
  if (!json.is_null()) v = std::make_shared<const Mesh>(mesh_from(json));
}
inline void read(const Json& json, std::optional<P>& v) {
  if (!json.is_null()) v = P(json.get<std::vector<std::vector<std::string>>>());
}
template <class T>
void read(const Json& json, T& v) {
  v = exactly<T>(json);
}
template <class... T>
void read(const Json& json, std::variant<T...>& v) {
  check(json.is_object() && json.size() == 1, "a value must stand alone under its kind");
  const std::string kind = json.begin().key();
  const auto read_as = [&]<class One>(const One*) {
    if (kind != kind_of_value<One>()) return false;
    v.template emplace<One>(value_from<One>(json.front()));
    return true;
  };
  check((read_as(static_cast<const T*>(nullptr)) || ...), "'{}' is no kind of value", kind);
}
template <HasWords E>
void read(const Json& json, E& v) {
  const auto& words = words_of<E>();
  const std::string word = json.get<std::string>();
  const auto* const found = std::ranges::find(words, word);
  check(found != std::end(words), "'{}' is no word for it", word);
  v = static_cast<E>(found - words);
}

template <IsDescribed S>
Json written(const S& v);
template <IsDescribed S>
void read(const Json& json, S& v);

/// Whether lists of it are written and read one by one; JSON has others itself.
template <class T>
concept IsListed =
    IsDescribed<T> || std::is_same_v<T, Type> || std::is_same_v<T, std::optional<Sharding>>;
template <IsListed T>
Json written(const std::vector<T>& list) {
  Json out = Json::array();
  for (const T& each : list) out.push_back(written(each));
  return out;
}
template <IsListed T>
void read(const Json& json, std::vector<T>& list) {
  for (const Json& each : json) read(each, list.emplace_back());
}

/// Writes the fields of several structs as those of one.
template <class... S>
Json written_fields(const S&... values) {
  Json out = Json::object();
  const auto write = [&]<class One>(const One& value) {
    for_each_field<One>([&](const auto& f) {
      if constexpr (std::decay_t<decltype(f)>::kept)
        if (f.kept_of(value)) out[f.name] = written(f.of(value));
    });
  };
  (write(values), ...);
  return out;
}

/// Throws TypeError for a field that is missing or that this version does not know.
template <class... S>
void read_fields(const Json& json, const char* what, S&... values) {
  check(json.is_object(), "{} is no object", what);
  std::size_t known = 0;
  const auto read_one = [&]<class One>(One& value) {
    for_each_field<One>([&](const auto& f) {
      if constexpr (std::decay_t<decltype(f)>::kept)
        if (json.contains(f.name)) read(json.at(f.name), f.of(value));
    });
    for_each_field<One>([&](const auto& f) {  // which belong depends on the others
      if (!f.kept_of(value)) return;
      check(json.contains(f.name), "{} has no field '{}'", what, f.name);
      ++known;
    });
  };
  (read_one(values), ...);
  check(json.size() == known, "{} has fields that this version does not know", what);
}

template <IsDescribed S>
Json written(const S& v) {
  return written_fields(v);
}
template <IsDescribed S>
void read(const Json& json, S& v) {
  read_fields(json, "an entry", v);
}

}  // namespace postern::internal::file
