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
  thread_local std::string kept;
  kept = value;
  *out = kept.c_str();
}

/// Enters read(attributes) when there is one of that name.
template <class Read>
int with_attribute(const pn_firing* firing, const char* name, const void* out, const Read& read) {
  return c::guarded([&] {
    check(firing && firing->attributes && name && out, "pn_attribute: firing, name or out is NULL");
    const file::Json json = file::Json::parse(firing->attributes, nullptr, false);
    check(json.is_object(), "pn_attribute: the firing's attributes are no JSON object");
    const Attributes all = file::attributes_from(json);
    if (!all.has(name))
      return c::refuse(PN_NOT_FOUND, fmt::format("pn_attribute: there is no '{}' in {}",
                                                 one_line(name), to_string(all)));
    read(all);
    return int{PN_OK};
  });
}

template <class T, class Out>
int value_of(const pn_firing* firing, const char* name, Out* out) {
  return with_attribute(firing, name, out,
                        [&](const Attributes& all) { put(all.get<T>(name), out); });
}
template <class T, class Out>
int element_of(const pn_firing* firing, const char* name, std::size_t index, Out* out) {
  return with_attribute(firing, name, out, [&](const Attributes& all) {
    const auto& list = all.get<std::vector<T>>(name);
    check(index < list.size(), "pn_attribute: '{}' has {} elements, {} was asked for", name,
          list.size(), index);
    put(static_cast<const T&>(list[index]), out);
  });
}

}  // namespace

int pn_attribute_bool(const pn_firing* firing, const char* name, int* out) {
  return value_of<bool>(firing, name, out);
}
int pn_attribute_int64(const pn_firing* firing, const char* name, int64_t* out) {
  return value_of<std::int64_t>(firing, name, out);
}
int pn_attribute_double(const pn_firing* firing, const char* name, double* out) {
  return value_of<double>(firing, name, out);
}
int pn_attribute_string(const pn_firing* firing, const char* name, const char** out) {
  return value_of<std::string>(firing, name, out);
}
int pn_attribute_bool_at(const pn_firing* firing, const char* name, size_t index, int* out) {
  return element_of<bool>(firing, name, index, out);
}
int pn_attribute_int64_at(const pn_firing* firing, const char* name, size_t index, int64_t* out) {
  return element_of<std::int64_t>(firing, name, index, out);
}
int pn_attribute_double_at(const pn_firing* firing, const char* name, size_t index, double* out) {
  return element_of<double>(firing, name, index, out);
}
int pn_attribute_string_at(const pn_firing* firing, const char* name, size_t index,
                           const char** out) {
  return element_of<std::string>(firing, name, index, out);
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
