// Structs that are described once: a list of their fields, from which printing, keys and JSON
// derive. Those that no file has need no list, or have `fields`: core/params.h says when.
//
// A struct S is described by a specialisation of Described<S> whose `fields` is a tuple of
// `field`s, one for each member, in any order. A member that is missing there does not compile.
// What a field's type looks like as text is `text_of`, here; what it looks like in a file is for
// file/ to say.
#pragma once
#include <fmt/format.h>
#include <postern/error.h>
#include <postern/host.h>
#include <postern/sharding.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/params.h"
#include "core/text.h"

namespace postern::internal {

/// What a program's print says of a field; its key has all fields.
enum class Say : std::uint8_t {
  always,
  changed,  // where it is not the default
  never
};

template <class S, class M, bool is_kept>
struct Field {
  static constexpr bool kept = is_kept;  // in saved programs
  const char* name;
  M S::*member;
  Say say;
  bool (*condition)(const S&);  // for files to have it; null: they always do

  constexpr Field when(bool (*holds)(const S&)) const { return {name, member, say, holds}; }
  /// Returns the member of a struct.
  constexpr auto& of(auto& value) const { return value.*member; }
  /// Returns whether a file has it of this struct.
  bool kept_of(const S& value) const { return kept && (!condition || condition(value)); }
};
template <class S, class M>
constexpr Field<S, M, true> field(const char* name, M S::*member, Say say = Say::changed) {
  return {name, member, say, nullptr};
}
/// Describes one that no file has.
template <class S, class M>
constexpr Field<S, M, false> transient(const char* name, M S::*member, Say say = Say::never) {
  return {name, member, say, nullptr};
}

/// One field of a struct that is a member of S.
template <class S, class Part, class F>
struct InnerField : F {
  Part S::*part;
  constexpr auto& of(auto& value) const { return F::of(value.*part); }
  bool kept_of(const S& value) const { return F::kept_of(value.*part); }
};
/// Describes a member whose own fields stand for it, as if they were S's: in texts, keys and files.
template <class S, class Part>
struct FieldsOf {
  Part S::*part;
};
template <class S, class Part>
constexpr FieldsOf<S, Part> fields_of(Part S::*part) {
  return {part};
}
template <class S, class Part>
InnerField(auto f, Part S::*part) -> InnerField<S, Part, decltype(f)>;

/// The words for the values of an enum: `all`, one for each, in their order.
template <class E>
struct Words;
template <class E>
concept HasWords = requires {
  Words<E>::all;
};
/// Returns whether an enum has a name for its value v. The compiler writes one without a name as a
/// cast: "(E)3"; else the last ')' is the function's own, and no number follows it.
template <auto v>
constexpr bool is_enumerator() {
  constexpr std::string_view text = __PRETTY_FUNCTION__;
  const char next = text[text.rfind(')') + 1];
  return next != '-' && (next < '0' || next > '9');
}
template <HasWords E>
constexpr const auto& words_of() {
  constexpr std::size_t count = std::size(Words<E>::all);
  static_assert(
      is_enumerator<static_cast<E>(count - 1)>() && !is_enumerator<static_cast<E>(count)>(),
      "Words<E> must have a word for each value of E");
  return Words<E>::all;
}
template <HasWords E>
constexpr const char* word_of(E v) {
  return words_of<E>()[static_cast<std::size_t>(v)];
}

template <class S, class Part, class F>
void for_each_field_of(Part S::*part, F&& f);

/// Calls f(field) for each field of S.
template <class S, class F>
void for_each_field(F&& f) {
  static_assert(std::tuple_size_v<decltype(Described<S>::fields)> == detail::field_count<S, 64>(),
                "Described<S> must list every member of S");
  const auto tell = [&](const auto& each) {
    if constexpr (requires { each.part; })  // a FieldsOf
      for_each_field_of<S>(each.part, f);
    else
      f(each);
  };
  std::apply([&](const auto&... each) { (tell(each), ...); }, Described<S>::fields);
}
template <class S, class Part, class F>
void for_each_field_of(Part S::*part, F&& f) {
  for_each_field<Part>([&](const auto& inner) { f(InnerField{inner, part}); });
}

// --- fields as text ---

inline std::string text_of(bool v) { return bool_text(v); }
inline std::string text_of(int v) { return std::to_string(v); }
inline std::string text_of(std::int64_t v) { return std::to_string(v); }
inline std::string text_of(const std::string& v) { return v; }
inline std::string text_of(const char* v) { return v; }
inline std::string text_of(const Dims& v) { return dims_to_string(v); }
inline std::string text_of(const Place& v) { return fmt::format("{}:{}", v.file, v.line); }
inline std::string text_of(std::chrono::nanoseconds v) {
  return fmt::format("{:g}ms", std::chrono::duration<double, std::milli>(v).count());
}
template <HasWords E>
std::string text_of(E v) {
  return word_of(v);
}
template <class T>
requires requires(const T& v) { to_string(v); }
std::string text_of(const T& v) { return to_string(v); }
template <class T>
std::string text_of(const std::optional<T>& v) {
  if (v) return to_string(*v);
  return "none";
}
template <class T>
requires requires(const T& v) { to_string(v); }
std::string text_of(const std::shared_ptr<const T>& v) {
  if (v) return to_string(*v);
  return "none";
}

/// Writes "[2:TF,3:T]": structs between commas, the fields of each between colons.
template <IsDescribed S>
std::string text_of(const std::vector<S>& list) {
  Separator comma(",");
  std::string out;
  for (const S& each : list) {
    out += comma();
    Separator colon(":");
    for_each_field<S>([&](const auto& f) {
      out += colon();
      out += text_of(f.of(each));
    });
  }
  return fmt::format("[{}]", out);
}

template <>
struct Described<Named> {
  static constexpr auto fields =
      std::tuple(field("name", &Named::name), field("attributes", &Named::attributes));
};

/// Returns the exact text for keys, of what is shown rounded or in part.
inline std::string key_of(std::chrono::nanoseconds v) { return fmt::format("{}ns", v.count()); }
inline std::string key_of(const std::vector<Type>& v) {
  std::string key = to_string(v);
  for (const Type& type : v) key += type.weak ? '~' : '.';
  return key;
}
inline std::string text_of(const Named& v) { return named_text(v.name, v.attributes); }
inline std::string key_of(const Named& v) { return text_of(v) + kinds_of(v.attributes); }

/// Tells the sink each field of a parameter struct; pointers to what has no text as themselves.
/// What the print leaves out (see Say), or shows rounded (where there is a `key_of`), the sink
/// hears as hidden: keys have it all.
template <class S>
void tell_fields(const S& value, FieldSink& sink) {
  if (!sink.wants_text()) return;
  static const S defaults{};
  for_each_field<S>([&](const auto& f) {
    const auto& v = f.of(value);
    if constexpr (requires { text_of(v); }) {
      const std::string text = text_of(v);
      const bool shown =
          f.say == Say::always || (f.say == Say::changed && text != text_of(f.of(defaults)));
      if (shown) sink.text(f.name, text);
      if constexpr (requires { key_of(v); })
        sink.hidden(f.name, key_of(v));
      else if (!shown)
        sink.hidden(f.name, text);
    } else {
      sink.identity(f.name, v.get());
    }
  });
}

}  // namespace postern::internal
