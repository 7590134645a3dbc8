// Described structs as JSON: each kept field under its name, and no others.
#pragma once
#include <postern/error.h>

#include <iosfwd>

#include "core/described.h"
#include "file/site_json.h"

namespace postern::internal::file {

// What a field looks like in a file: words stand for enums, null for what is not there.
Json written(std::ostream* stream);
Json written(const Place& v);
Json written(const Named& v);
inline Json written(std::chrono::nanoseconds v) { return v.count(); }
inline Json written(const std::shared_ptr<Switch>& v) { return v != nullptr; }
inline Json written(const std::vector<Type>& v) { return to_json(v); }
inline Json written(const Sharding& v) { return to_json(v); }
inline Json written(const Mesh& v) { return to_json(v); }
inline Json written(const P& v) { return v.parts(); }
template <class T>
Json written(const T& v) {
  return Json(v);
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

// And back. They throw TypeErrors or JSON's exceptions for what `written` does not write.
void read(const Json& json, std::ostream*& stream);
void read(const Json& json, Place& v);
void read(const Json& json, Named& v);
void read(const Json& json, std::chrono::nanoseconds& v);
inline void read(const Json& json, std::shared_ptr<Switch>& v) {
  if (json.get<bool>()) v = std::make_shared<Switch>();
}
inline void read(const Json& json, std::vector<Type>& v) { v = types_from(json); }
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
  v = json.get<T>();
}
template <HasWords E>
void read(const Json& json, E& v) {
  v = static_cast<E>(index_of("word for it", words_of<E>(), json.get<std::string>()));
}

template <IsDescribed S>
Json written(const std::vector<S>& list);
template <IsDescribed S>
void read(const Json& json, std::vector<S>& list);

template <class S>
Json written_fields(const S& value) {
  Json out = Json::object();
  for_each_field<S>([&](const auto& f) {
    if constexpr (std::decay_t<decltype(f)>::kept)
      if (f.kept_of(value)) out[f.name] = written(value.*f.member);
  });
  return out;
}

/// Throws TypeError for a field that is missing or that this version does not know.
template <class S>
void read_fields(const Json& json, const char* what, S& value) {
  check(json.is_object(), "{} is no object", what);
  for_each_field<S>([&](const auto& f) {
    if constexpr (std::decay_t<decltype(f)>::kept)
      if (json.contains(f.name)) read(json.at(f.name), value.*f.member);
  });
  std::size_t known = 0;
  for_each_field<S>([&](const auto& f) {  // which belong depends on the others
    if constexpr (std::decay_t<decltype(f)>::kept) {
      if (!f.kept_of(value)) return;
      check(json.contains(f.name), "{} has no field '{}'", what, f.name);
      ++known;
    }
  });
  check(json.size() == known, "{} has fields that this version does not know", what);
}

template <IsDescribed S>
Json written(const std::vector<S>& list) {
  Json out = Json::array();
  for (const S& each : list) out.push_back(written_fields(each));
  return out;
}
template <IsDescribed S>
void read(const Json& json, std::vector<S>& list) {
  for (const Json& each : json) read_fields(each, "an entry", list.emplace_back());
}

}  // namespace postern::internal::file
