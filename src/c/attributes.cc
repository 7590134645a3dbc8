// Attributes of a firing for C, by name and type: read from their text, which a copy of a firing
// has too.
#include "c/c_api.h"
#include "core/check.h"
#include "file/site_json.h"

using namespace postern;
using namespace postern::internal;

namespace {

template <class T>
void put(const T& value, T* out) {
  *out = value;
}
void put(bool value, int* out) { *out = value; }
void put(const std::string& value, const char** out) {
  thread_local std::string kept;  // until the thread asks for the next
  kept = value;
  *out = kept.c_str();
}

/// Calls read(attributes) when there is one of that name.
template <class Read>
int with_attribute(const pn_firing* firing, const char* name, const void* out, const Read& read) {
  return c::guarded(
      firing && firing->attributes && name && out, "pn_attribute: firing, name or out", [&] {
        const file::Json json = file::Json::parse(firing->attributes, nullptr, false);
        check(json.is_object(), "pn_attribute: the firing's attributes are no JSON object");
        const Attributes all = file::attributes_from(json);
        if (!all.has(name))
          throw Error(ErrorCode::not_found, fmt::format("pn_attribute: there is no '{}' in {}",
                                                        one_line(name), to_string(all)));
        read(all);
      });
}

/// What an attribute is that C gets as `Out`: a bool as int, a text as const char*.
template <class Out>
using Held =
    std::conditional_t<std::is_same_v<Out, int>, bool,
                       std::conditional_t<std::is_same_v<Out, const char*>, std::string, Out>>;

template <class Out>
int get(const pn_firing* firing, const char* name, Out* out) {
  return with_attribute(firing, name, out,
                        [&](const Attributes& all) { put(all.get<Held<Out>>(name), out); });
}
template <class Out>
int get(const pn_firing* firing, const char* name, std::size_t index, Out* out) {
  return with_attribute(firing, name, out, [&](const Attributes& all) {
    const auto& list = all.get<std::vector<Held<Out>>>(name);
    check(index < list.size(), "pn_attribute: '{}' has {} elements, {} was asked for", name,
          list.size(), index);
    put(static_cast<const Held<Out>&>(list[index]), out);
  });
}

}  // namespace

using Fire = pn_firing;
int pn_attribute_bool(const Fire* f, const char* n, int* out) { return get(f, n, out); }
int pn_attribute_int64(const Fire* f, const char* n, int64_t* out) { return get(f, n, out); }
int pn_attribute_double(const Fire* f, const char* n, double* out) { return get(f, n, out); }
int pn_attribute_string(const Fire* f, const char* n, const char** out) { return get(f, n, out); }
int pn_attribute_bool_at(const Fire* f, const char* n, size_t i, int* out) {
  return get(f, n, i, out);
}
int pn_attribute_int64_at(const Fire* f, const char* n, size_t i, int64_t* out) {
  return get(f, n, i, out);
}
int pn_attribute_double_at(const Fire* f, const char* n, size_t i, double* out) {
  return get(f, n, i, out);
}
int pn_attribute_string_at(const Fire* f, const char* n, size_t i, const char** out) {
  return get(f, n, i, out);
}
int pn_attribute_size(const pn_firing* firing, const char* name, size_t* out) {
  return with_attribute(firing, name, out, [&](const Attributes& all) {
    std::visit(
        [&]<class T>(const T& value) {
          if constexpr (detail::is_sequence<T>::value)
            *out = value.size();
          else
            throw_type_error(
                fmt::format("pn_attribute: '{}' is no list in {}", name, to_string(all)));
        },
        all.items().find(name)->second);
  });
}
